r"""A conditional energy-based likelihood, with a density of its own choice to draw auxiliary data from.

    q(w | theta) = f(w | t) / Z(theta),   Z(theta) = E_{w ~ r(. | t)}[f(w | t) / r(w | t)]

`ConditionalLikelihood` draws auxiliary data from the base that the model was trained with.  A model on a very wide
measure would have to be found from there by chance: a reference r fitted to the data, which is no part of the model
and cancels in the end, starts the search where the data are.
"""

from unle.models.bases import AbstractBase
from unle.models.conditional import DoublyIntractableLikelihood
from unle.models.tilted import TiltedModel
from unle.space import ThetaSpace, XSpace


class ReferencedLikelihood(DoublyIntractableLikelihood):
    """A conditional model and a reference.

    Args:
        theta_space: standardises theta.
        x_space: standardises x.
        model: base and energy, which make up log f.
        reference: r, normalised.
    """

    theta_space: ThetaSpace
    x_space: XSpace
    model: TiltedModel
    reference: AbstractBase

    def prepare(self, x):
        """Return w."""
        return self.x_space.forward(x)

    def standardise(self, theta):
        """Return t."""
        return self.theta_space.forward(theta)

    def log_unnormalised(self, theta, w):
        """Return log f(w | t)."""
        return self.model.log_density(self.theta_space.forward(theta), w)

    def log_tilt(self, t, v):
        """Return log f - log r at v."""
        w = self.reference.unwhiten(t, v)
        return self.model.log_density(t, w) - self.reference.log_density(t, w)

    def log_reference(self, v):
        """Return log r(v)."""
        return self.reference.log_density_whitened(v)

    def draws(self, key, n):
        """Draw from r(v)."""
        return self.reference.draws_whitened(key, n)

    def whiten(self, t, w):
        """Return the reference's coordinates of w."""
        return self.reference.whiten(t, w)

    def unwhiten(self, t, v):
        """Return w at the reference's coordinates v."""
        return self.reference.unwhiten(t, v)
