r"""Bases around other bases: noise that is not Gaussian, repeated measurements, and what an energy sees.

**Noise**: heavy tails, several modes, skewness, coordinate by coordinate.  A base turns data into residuals v, N(0, I)
if its noise is Gaussian.  `NoisyBase` gives every coordinate a mixture of normals instead,

    q0(v) = prod_j sum_c a_jc N(v_j; m_jc, s_jc^2),

which is still normalised and easy to draw from.  A tilt by a bounded energy keeps the tails of its base, so the base
must have the data's tails: otherwise outliers pull the energy down where no particle ever goes, and mass that nobody
counts collects there.

**Repeated measurements** have one density for each of them, q0(w | t) = prod_b q(w_b | t).  The blocks w_b are
coordinates of w that were found to be alike (`unle.space.data_kinds`); q was fitted to all of them.

**Views**: what an energy sees of w next to t, residuals of its base, and how far out they lie.

    r = P (w - b - A' t)   next to it shapes that stay where they are in the data are simple,
    v = T(t) (r - m(t))    next to it shapes that move and scale with the simulator are.

An energy that sees r alone has to learn from the data where the base has moved to; one that sees v alone, to undo its
wiggles.  With both (`TwoViews`) it takes what it needs.  The last number that an energy is given is the squared
distance |v|^2.  It is not an input of its network: beyond the distances that draws of the base reach, an energy fades
out (`unle.models.energy_model`).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.special import chdtri

from unle.models.bases import LOG_2PI, AbstractBase, AbstractBaseWrapper, FixedMeasure
from unle.models.mlp import normals
from unle.space.host_device import on_device

LINEAR_RANGE = 3.0  # residuals that a network sees nearly as they are; beyond, their logarithm
REACH_SHARE = 0.999  # share of the base's draws within the distance up to which an energy counts in full
DRAWS = 20_000


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


class Repeated(AbstractBase):
    """The product of the base of one measurement over blocks, the coordinates of w that belong to each measurement."""

    one: AbstractBase
    blocks: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    @property
    def repeats(self) -> int:
        """Number of measurements."""
        return len(self.blocks)

    def whiten_with_log_det(self, t, w):
        parts, log_dets = jax.vmap(lambda part: self.one.whiten_with_log_det(t, part))(self._apart(w))
        return self._together(parts), jnp.sum(log_dets)

    def unwhiten(self, t, v):
        return self._together(jax.vmap(lambda part: self.one.unwhiten(t, part))(self._apart(v)))

    def log_density_whitened(self, v):
        return jnp.sum(jax.vmap(self.one.log_density_whitened)(self._apart(v)))

    def draws_whitened(self, key, n):
        parts = self.one.draws_whitened(key, n * self.repeats)
        return jax.vmap(self._together)(parts.reshape(n, self.repeats, -1))

    def sees_whitened(self):
        return self.one.sees_whitened()

    def seen(self, v):
        return self._together(jax.vmap(self.one.seen)(self._apart(v)))

    def features(self, t, w):
        return self._together(jax.vmap(lambda part: self.one.features(t, part))(self._apart(w)))

    def features_whitened(self, t, v):
        return self._together(jax.vmap(lambda part: self.one.features_whitened(t, part))(self._apart(v)))

    def _apart(self, w: Float[Array, " data"]) -> Float[Array, "block part"]:
        return w[np.array(self.blocks)]

    def _together(self, parts: Float[Array, "block part"]) -> Float[Array, " data"]:
        return parts.ravel()[np.argsort(np.ravel(self.blocks))]


class AbstractView(AbstractBaseWrapper):
    """A base whose last feature is the squared distance |v|^2; to make one, say what stands before it."""

    def features(self, t, w):
        return self.log_density_and_features(t, w)[1]

    def log_density(self, t, w):
        """Return that of the base, which may be cheaper than v is."""
        return self.base.log_density(t, w)


class OneView(AbstractView):
    """The base's own features, and the distance."""

    base: AbstractBase

    def log_density_and_features(self, t, w):
        v, log_det = self.base.whiten_with_log_det(t, w)
        own = self.base.seen(v) if self.base.sees_whitened() else self.base.features(t, w)
        seen = jnp.append(own, distance(self.base, v))
        return self.log_density_whitened(v) + log_det, seen

    def features_whitened(self, t, v):
        return jnp.append(self.base.features_whitened(t, v), distance(self.base, v))


class TwoViews(AbstractView):
    """The base's own features, its coordinates v, and the distance."""

    base: AbstractBase

    def log_density_and_features(self, t, w):
        """Return both from one v: its gradient goes through the base once."""
        v, log_det = self.base.whiten_with_log_det(t, w)
        return self.log_density_whitened(v) + log_det, self._seen(self.base.features(t, w), v)

    def features_whitened(self, t, v):
        return self._seen(self.base.features_whitened(t, v), v)

    def _seen(self, r, v):
        return jnp.concatenate([r, self.base.seen(v), distance(self.base, v)[None]])


def distance(base: AbstractBase, v: Float[Array, " data"]) -> Float[Array, ""]:
    """Return the squared distance of residuals, as an energy sees them, from the middle."""
    return jnp.sum(jnp.square(base.seen(v)))


def in_one_view(base: AbstractBase) -> AbstractBase:
    """Return the base with its distance among the features; a fixed measure as it is."""
    return base if isinstance(base, FixedMeasure) else OneView(base)


def in_two_views(base: AbstractBase) -> AbstractBase:
    """Return the base with both views of w, or with one if they are the same; a fixed measure as it is."""
    return TwoViews(base) if not base.sees_whitened() else in_one_view(base)


def reach_of(bases: AbstractBase, dim_data: int, *, members: int) -> Float[Array, " member"] | None:
    """Return |v|^2 that one draw in a thousand of stacked bases exceeds; None for bases that do not tell distances."""
    if not isinstance(bases, AbstractView):
        return None
    nodes = jax.tree.leaves(bases, is_leaf=lambda node: isinstance(node, NoisyBase))
    if any(isinstance(node, NoisyBase) for node in nodes):
        squares = np.asarray(_distances(bases.base))
        return on_device(np.quantile(squares, REACH_SHARE, axis=1))
    return on_device(np.full(members, chdtri(dim_data, 1 - REACH_SHARE)))


@eqx.filter_jit
def _distances(bases: AbstractBase) -> Float[Array, "member draw"]:
    def of_member(base):
        v = base.draws_whitened(jax.random.key(0), DRAWS)
        return jax.vmap(lambda v: distance(base, v))(v)

    return eqx.filter_vmap(of_member)(bases)


def length_seen(bases: AbstractBase, dim_theta: int, dim_data: int) -> int:
    """Return how many numbers an energy on top of stacked bases is given of w."""

    def of_members(bases, t, w):
        return eqx.filter_vmap(lambda base: base.features(t, w))(bases)

    t, w = (jax.ShapeDtypeStruct((dim,), jnp.float32) for dim in (dim_theta, dim_data))
    return eqx.filter_eval_shape(of_members, bases, t, w).shape[-1]
