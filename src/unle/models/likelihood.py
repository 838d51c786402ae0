r"""Likelihoods of raw data: what a posterior is made of.

The class of a likelihood says what is known of its normaliser.  A `TractableLikelihood` lacks at most a constant that
does not depend on theta, so any sampler may use it as it is.  The other kind, `DoublyIntractableLikelihood`, lacks a
normaliser that does.
"""

import abc

import equinox as eqx
from jaxtyping import Array, Float

from unle.models.energy_model import EnergyModel
from unle.space import ThetaSpace, XSpace


class AbstractLikelihood(eqx.Module):
    """A model of x given theta, in two steps so that work on x alone is done once.

    `prepare` turns raw data into what the model sees of it; the density of either kind takes that.
    """

    @abc.abstractmethod
    def prepare(self, x: Float[Array, " dim_x"]) -> Float[Array, "*point data"]:
        """Return the standardised data w of one raw x, or of several points that stand for it."""

    def coordinates(self, x: Float[Array, " dim_x"]) -> Float[Array, " data"]:
        """Return one raw x in the coordinates of the fit: w, unless the model sees more of x than one point."""
        return self.prepare(x)

    def space_of_x(self) -> XSpace | None:
        """Return the standardisation of x that the model was fitted with; None if it has none."""
        return None


class TractableLikelihood(AbstractLikelihood):
    """A likelihood whose missing constant, if any, is the same for every theta."""

    @abc.abstractmethod
    def log_likelihood(self, theta: Float[Array, " dim"], w: Float[Array, "*point data"]) -> Float[Array, ""]:
        """Return the log-density of w given theta, up to that constant."""


class AbstractWrapper(TractableLikelihood):
    """A tractable likelihood made of another one, which sees x in its place; to make one, define the density."""

    likelihood: eqx.AbstractVar[AbstractLikelihood]

    def space_of_x(self):
        return self.likelihood.space_of_x()

    def prepare(self, x):
        return self.likelihood.prepare(x)

    def coordinates(self, x):
        return self.likelihood.coordinates(x)


class EnergyLikelihood(TractableLikelihood):
    """An energy-based model with the maps from raw theta and x, and log Z_pi, estimated after training.

        log q(x | theta) = log q0(w | t) - E(t, w) - log Z_pi,   t = theta_space(theta), w = x_space(x)

    log Z_pi makes members of an ensemble comparable.
    """

    theta_space: ThetaSpace
    x_space: XSpace
    model: EnergyModel
    log_z: Float[Array, ""]

    def space_of_x(self):
        return self.x_space

    def prepare(self, x):
        return self.x_space.forward(x)

    def log_likelihood(self, theta, w):
        return self.model.log_density(self.theta_space.forward(theta), w) - self.log_z


class Tempered(AbstractWrapper):
    """A likelihood to the power of beta, between 0 and 1, for proposals that do not run ahead of the simulations."""

    likelihood: TractableLikelihood
    temperature: Float[Array, ""]

    def log_likelihood(self, theta, w):
        return self.temperature * self.likelihood.log_likelihood(theta, w)
