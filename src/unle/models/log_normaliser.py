r"""A learned log-normaliser, and the wrapper that makes a doubly intractable likelihood an ordinary one.

    log q(w | theta) = log f(w | theta) - b(t),   b(t) ~ log Z(theta)

With b in place the posterior is singly intractable, and every sampler may be used.  What b gets wrong goes straight
into the posterior: an error whose spread over the posterior is s nats costs a C2ST of about Phi(s / 2).
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unle.models.conditional_likelihood import DoublyIntractableLikelihood
from unle.models.likelihood import AbstractWrapper
from unle.models.mlp import Mlp


class LogNormaliser(eqx.Module):
    r"""b(t) = offset + slope . z + scale net(z), with z = whitener (t - centre).

    z has mean zero and unit covariance over the theta that b was fitted to, however narrow that region is.  Offset,
    slope and scale take the size out of the problem: the network learns something of order one.

    Args:
        centre: mean of t, shape (d,).
        whitener: inverse of a factor of the covariance of t, shape (d, d).
        offset: value at the centre, up to the network's.
        slope: linear part, shape (d,).
        scale: size of the network's part.
        net: network of z with one output.
    """

    centre: Float[Array, " dim"]
    whitener: Float[Array, "dim dim"]
    offset: Float[Array, ""]
    slope: Float[Array, " dim"]
    scale: Float[Array, ""]
    net: Mlp

    @classmethod
    def initial(cls, key: PRNGKeyArray, dim: int, *, width: int = 64, depth: int = 2) -> "LogNormaliser":
        """Return b = 0 in coordinates t that are standardised already, with a network ready to learn."""
        net = Mlp(key, dim, 1, width=width, depth=depth, output_scale=0.0)
        return cls(jnp.zeros(dim), jnp.eye(dim), jnp.zeros(()), jnp.zeros(dim), jnp.ones(()), net)

    def __call__(self, t: Float[Array, " dim"]) -> Float[Array, ""]:
        """Return b at standardised parameters t."""
        z = self.whitener @ (t - self.centre)
        return self.offset + self.slope @ z + self.scale * self.net(z)[0]

    def shifted(self, constant: Float[Array, ""] | float) -> "LogNormaliser":
        """Return b + constant."""
        return eqx.tree_at(lambda b: b.offset, self, self.offset + constant)

    def in_coordinates(self, shift: Float[Array, " dim"], scale: Float[Array, " dim"]) -> "LogNormaliser":
        """Return the same function in other coordinates t' of theta, where t = shift + scale t'.

        A new standardisation of theta then changes nothing: b'(t') = b(shift + scale t') exactly.
        """
        return eqx.tree_at(
            lambda b: (b.centre, b.whitener), self, ((self.centre - shift) / scale, self.whitener * scale)
        )


class Normalised(AbstractWrapper):
    """A doubly intractable likelihood f(w | theta), divided by its learned normaliser b(t), about log Z(theta)."""

    likelihood: DoublyIntractableLikelihood
    log_normaliser: LogNormaliser

    def log_z(self, theta: Float[Array, " dim"]) -> Float[Array, ""]:
        """Return b at raw theta."""
        return self.log_normaliser(self.likelihood.standardise(theta))

    def log_likelihood(self, theta, w):
        return self.likelihood.log_unnormalised(theta, w) - self.log_z(theta)
