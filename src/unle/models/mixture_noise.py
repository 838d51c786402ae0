r"""Residuals that are not Gaussian: heavy tails, several modes, skewness, coordinate by coordinate.

A base turns data into residuals v, N(0, I) if its noise is Gaussian.  `NoisyBase` gives every coordinate a mixture of
normals instead,

    q0(v) = prod_j sum_c a_jc N(v_j; m_jc, s_jc^2),

which is still normalised and easy to draw from.  A tilt by a bounded energy keeps the tails of its base, so the base
must have the data's tails: otherwise outliers pull the energy down where no particle ever goes, and mass that nobody
counts collects there.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, PRNGKeyArray

from unle.models.bases import LOG_2PI, AbstractBase, AbstractBaseWrapper
from unle.models.mlp import normals

LINEAR_RANGE = 3.0  # residuals that a network sees nearly as they are; beyond, their logarithm


class MixtureNoise(eqx.Module):
    """Independent coordinates, each a mixture of normals with weights a, means m and scales s."""

    log_weights: Float[Array, "data component"]
    means: Float[Array, "data component"]
    scales: Float[Array, "data component"]

    def log_density(self, v: Float[Array, " data"]) -> Float[Array, ""]:
        """Return log q0(v)."""
        z = (v[:, None] - self.means) / self.scales
        parts = self.log_weights - 0.5 * jnp.square(z) - jnp.log(self.scales) - 0.5 * LOG_2PI
        return jnp.sum(logsumexp(parts, axis=1))

    def draws(self, key: PRNGKeyArray, n: int) -> Float[Array, "n data"]:
        """Draw n of v."""
        key_component, key_normal = jr.split(key)
        k, _ = self.means.shape
        uniforms = jr.uniform(key_component, (n * k,)).reshape(n, k)
        below = jnp.cumsum(jnp.exp(self.log_weights), axis=1)[:, :-1]
        component = jnp.sum(uniforms[:, :, None] > below, axis=2)
        coordinate = jnp.arange(k)
        return self.means[coordinate, component] + self.scales[coordinate, component] * normals(key_normal, n, k)


class NoisyBase(AbstractBaseWrapper):
    """A base whose residuals have other noise than Gaussian; its energies see residuals with their tails drawn in."""

    base: AbstractBase
    noise: MixtureNoise

    def log_density_whitened(self, v):
        return self.noise.log_density(v)

    def draws_whitened(self, key, n):
        return self.noise.draws(key, n)

    def sees_whitened(self):
        return self.base.sees_whitened()

    def seen(self, v):
        """Return v as an energy sees it: nearly linear up to a few standard deviations, then logarithmic."""
        return LINEAR_RANGE * jnp.arcsinh(v / LINEAR_RANGE)

    def features(self, t, w):
        return self.seen(self.base.features(t, w))

    def features_whitened(self, t, v):
        return self.seen(self.base.features_whitened(t, v))


def with_noise(bases: AbstractBase, noise: MixtureNoise, *, members: int) -> NoisyBase:
    """Return stacked bases with one noise for all members."""
    stacked = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (members, *leaf.shape)), noise)
    return NoisyBase(bases, stacked)
