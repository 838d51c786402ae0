r"""Likelihoods whose normaliser depends on theta in an unknown way.

A conditional energy-based model tilts a normalised base,

    q(w | theta) = q0(w | t) exp(-E(t, w)) / Z(theta),   Z(theta) = E_{w ~ q0(. | t)}[exp(-E(t, w))],

and is trained on pairs whatever theta was drawn from, so nothing makes Z(theta) constant.  The posterior p(theta)
q0 exp(-E) / Z(theta) is *doubly intractable*: neither its own constant nor the factor 1 / Z(theta) is known.

In the base's coordinates v, whose density q0(v) does not depend on theta, the same Z(theta) reads

    Z(theta) = E_{v ~ q0}[exp(s(t, v))],   s = -E at v.

Samplers that need draws of the model to cancel Z(theta) draw v rather than w: what the base already says about theta
cancels by itself, and only the tilt s is left to be paid for.
"""

import abc

from jaxtyping import Array, Float, PRNGKeyArray

from unle.models.likelihood import AbstractLikelihood
from unle.models.tilted import TiltedModel
from unle.space import ThetaSpace, XSpace


class DoublyIntractableLikelihood(AbstractLikelihood):
    """A likelihood f(w | theta) / Z(theta) of which only f is known.

    To make one, define the density and what an auxiliary sampler needs: a reference density of v that does not depend
    on theta, and the log-tilt s with Z(theta) = E_reference[exp(s(t, v))].
    """

    @abc.abstractmethod
    def standardise(self, theta: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """Return the standardised parameters t of one raw theta."""

    @abc.abstractmethod
    def log_unnormalised(self, theta: Float[Array, " dim"], w: Float[Array, " data"]) -> Float[Array, ""]:
        """Return log f(w | theta) of standardised data w."""

    @abc.abstractmethod
    def log_tilt(self, t: Float[Array, " dim"], v: Float[Array, " data"]) -> Float[Array, ""]:
        """Return s(t, v), the log of the model's density of v over the reference's, plus log Z(theta)."""

    @abc.abstractmethod
    def log_reference(self, v: Float[Array, " data"]) -> Float[Array, ""]:
        """Return the reference's log-density of v."""

    @abc.abstractmethod
    def draws(self, key: PRNGKeyArray, n: int) -> Float[Array, "n data"]:
        """Draw n of v from the reference."""

    @abc.abstractmethod
    def whiten(self, t: Float[Array, " dim"], w: Float[Array, " data"]) -> Float[Array, " data"]:
        """Return the coordinates v of w."""

    @abc.abstractmethod
    def unwhiten(self, t: Float[Array, " dim"], v: Float[Array, " data"]) -> Float[Array, " data"]:
        """Return w at the coordinates v."""


class ConditionalLikelihood(DoublyIntractableLikelihood):
    r"""A conditional energy-based model with the maps from raw theta and x.

        log f(w | theta) = log q0(w | t) - E(t, w),   t = theta_space(theta), w = x_space(x)

    Args:
        theta_space: standardises theta.
        x_space: standardises x.
        model: base and energy.
    """

    theta_space: ThetaSpace
    x_space: XSpace
    model: TiltedModel

    def prepare(self, x):
        """Return w."""
        return self.x_space.forward(x)

    def standardise(self, theta):
        """Return t."""
        return self.theta_space.forward(theta)

    def log_unnormalised(self, theta, w):
        """Return log q0(w | t) - E(t, w)."""
        return self.model.log_density(self.theta_space.forward(theta), w)

    def log_tilt(self, t, v):
        """Return -E at v."""
        return self.model.log_tilt_whitened(t, v)

    def log_reference(self, v):
        """Return log q0(v)."""
        return self.model.base.log_density_whitened(v)

    def draws(self, key, n):
        """Draw from q0(v)."""
        return self.model.base.draws_whitened(key, n)

    def whiten(self, t, w):
        """Return the base's coordinates of w."""
        return self.model.base.whiten(t, w)

    def unwhiten(self, t, v):
        """Return w at the base's coordinates v."""
        return self.model.base.unwhiten(t, v)
