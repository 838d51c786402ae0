r"""Likelihoods of raw data: what a posterior is made of.

The class of a likelihood says what is known of its normaliser.  A `TractableLikelihood` lacks at most a constant that
does not depend on theta, so any sampler may use it as it is.  The other kind, `DoublyIntractableLikelihood`, lacks a
normaliser that does.
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from unle.models.tilted import TiltedModel
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


class TractableLikelihood(AbstractLikelihood):
    """A likelihood whose missing constant, if any, is the same for every theta."""

    @abc.abstractmethod
    def log_likelihood(self, theta: Float[Array, " dim"], w: Float[Array, "*point data"]) -> Float[Array, ""]:
        """Return the log-density of w given theta, up to that constant."""


class TiltedLikelihood(TractableLikelihood):
    r"""A tilted energy-based model with the maps from raw theta and x.

        log q(x | theta) = log q0(w | t) - E(t, w) - log Z_pi,   t = theta_space(theta), w = x_space(x)

    Args:
        theta_space: standardises theta.
        x_space: standardises x.
        model: base and energy.
        log_z: log Z_pi, estimated after training; it makes members of an ensemble comparable.
    """

    theta_space: ThetaSpace
    x_space: XSpace
    model: TiltedModel
    log_z: Float[Array, ""]

    def prepare(self, x):
        """Return w."""
        return self.x_space.forward(x)

    def log_likelihood(self, theta, w):
        """Return log q0(w | t) - E(t, w) - log Z_pi."""
        return self.model.log_density(self.theta_space.forward(theta), w) - self.log_z


class Ensemble(TractableLikelihood):
    r"""The equal mixture of K tilted models that share their coordinates.

        q(x | theta) = 1/K sum_k q_k(x | theta)

    Members see different training splits and initial weights.  Where data are plenty they agree; where data are few
    they differ, and the mixture is as wide as their disagreement.

    Args:
        theta_space: standardises theta.
        x_space: standardises x.
        models: the K models, stacked along a leading axis of every array.
        log_z: log Z_pi of each, shape (K,).
    """

    theta_space: ThetaSpace
    x_space: XSpace
    models: TiltedModel
    log_z: Float[Array, " members"]

    @property
    def size(self) -> int:
        """Number of members K."""
        return self.log_z.shape[0]

    def prepare(self, x):
        """Return w."""
        return self.x_space.forward(x)

    def log_likelihood(self, theta, w):
        """Return the log of the members' mean density."""
        return logsumexp(self.member_log_likelihoods(theta, w)) - jnp.log(self.size)

    def member_log_likelihoods(self, theta: Float[Array, " dim"], w: Float[Array, " data"]) -> Float[Array, " members"]:
        """Return every member's own log-likelihood; their spread shows where the data say little."""
        t = self.theta_space.forward(theta)
        values = eqx.filter_vmap(lambda model: model.log_density(t, w))(self.models)
        return values - self.log_z

    def member(self, k: int) -> TiltedLikelihood:
        """Return member k as a likelihood of its own."""
        arrays, static = eqx.partition(self.models, eqx.is_array)
        model = eqx.combine(jax.tree.map(lambda leaf: leaf[k], arrays), static)
        return TiltedLikelihood(self.theta_space, self.x_space, model, self.log_z[k])
