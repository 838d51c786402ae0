r"""What the members of an ensemble agree on.

    q(x | theta) \propto prod_k q_k(x | theta)^(1/K)

The mixture of an ensemble calls a parameter likely as soon as one member does.  In many dimensions that is too easy: of
all parameters, those that one member is mistaken about come to the top, and there are no simulations to prove it wrong.
The geometric mean needs the consent of all.  Sequential methods propose by it, and report it: the posterior is then
where the simulations are.
"""

from typing import Any

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


def agreed(likelihood: Any) -> Any:
    """Return what the members of an ensemble agree on; any other likelihood as it is."""
    return Consensus(likelihood) if isinstance(likelihood, Ensemble | Mixture) else likelihood
