r"""What the members of an ensemble agree on.

    q(x | theta) \propto prod_k q_k(x | theta)^(1/K)

The mixture of an ensemble calls a parameter likely as soon as one member does.  That is right for a posterior, which
has to hold everything the simulations do not rule out, and wasteful for proposals: of many parameters, those one
member is mistaken about come to the top.  The geometric mean needs the consent of all.
"""

import jax.numpy as jnp

from unle.models.likelihood import Ensemble, TractableLikelihood
from unle.models.mixture import Mixture


class Consensus(TractableLikelihood):
    """The geometric mean of an ensemble's densities, up to a constant that is taken not to depend on theta.

    Args:
        members: the ensemble.
    """

    members: Ensemble | Mixture

    @property
    def x_space(self):
        """The members' standardisation of x."""
        return self.members.x_space

    def prepare(self, x):
        """Return w."""
        return self.members.prepare(x)

    def log_likelihood(self, theta, w):
        """Return the mean of the members' log-densities."""
        return jnp.mean(self.members.member_log_likelihoods(theta, w))
