r"""Likelihoods for sequential inference: trusted in one region, and tempered.

A likelihood that was fitted to simulations of one region says nothing about parameters outside.  A `Region` makes it
fall off there,

    log q_B(x | theta) = log q(x | theta) - 1/2 sum_j (d_j / (s (h_j - l_j)))^2,

d_j how far coordinate j of theta lies outside the box B = [l, h]; this is a prior restricted to the box, with walls
soft enough for a sampler to find its way in.  `Tempered` flattens a likelihood, q^beta with beta between 0 and 1:
proposals drawn with it do not run ahead of what the simulations support.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from unle.models.likelihood import TractableLikelihood
from unle.models.validity import AbstractValidity
from unle.space import ThetaSpace, XSpace

SOFTNESS = 0.05  # s: the walls' thickness as a share of the box


class Region(AbstractValidity):
    """Trust inside a box of standardised parameters, falling off outside; for `with_validity`.

    Args:
        theta_space: the coordinates in which the box is given.
        low: l.
        high: h.
    """

    theta_space: ThetaSpace
    low: Float[Array, " dim"]
    high: Float[Array, " dim"]

    def __call__(self, theta: Float[Array, " dim"]) -> Float[Array, ""]:
        """Return the log of the trust in theta: 0 inside."""
        t = self.theta_space.forward(theta)
        beyond = (t - jnp.clip(t, self.low, self.high)) / (SOFTNESS * (self.high - self.low))
        return -0.5 * jnp.sum(jnp.square(beyond))


class Tempered(TractableLikelihood):
    """A likelihood to the power of beta.

    Args:
        inner: the likelihood.
        temperature: beta.
    """

    inner: TractableLikelihood
    temperature: Float[Array, ""]

    @property
    def x_space(self) -> XSpace | None:
        """The inner likelihood's standardisation of x, if it has one."""
        return getattr(self.inner, "x_space", None)

    def prepare(self, x):
        """Return the inner likelihood's data."""
        return self.inner.prepare(x)

    def coordinates(self, x):
        """Return x in the coordinates of the inner likelihood."""
        return self.inner.coordinates(x)

    def log_likelihood(self, theta, w):
        """Return beta log q."""
        return self.temperature * self.inner.log_likelihood(theta, w)
