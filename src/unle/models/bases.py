r"""Base densities q0(w | t): what an energy tilts.

t and w stand for theta and x in the standardised coordinates of the training data.  A tilted model is

    q(w | t) \propto q0(w | t) exp(-E(t, w)),

so the base decides three things: where the model has mass when the energy says nothing, in which coordinates chains
move (`whiten` and `unwhiten`), and what the energy sees of w (`features`).  A base that is already close leaves the
energy little to learn.

Bases around other bases have noise that is not Gaussian (`NoisyBase`), describe repeated measurements (`Repeated`), or
say what an energy sees of w (`OneView`, `TwoViews`).
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.special import chdtri

from unle.compiling import on_device
from unle.models.corrections import AbstractCorrection, NoCorrection
from unle.models.mlp import normals

LOG_2PI = 1.8378770664093453
LINEAR_RANGE = 3.0  # residuals that a network sees nearly as they are; beyond, their logarithm
REACH_SHARE = 0.999  # share of the base's draws within the distance up to which an energy counts in full
DRAWS = 20_000


class AbstractBase(eqx.Module):
    """A normalised density of w given t, with coordinates v in which it is simple.

    To make one, define these methods; all take single points.
    """

    @abc.abstractmethod
    def whiten_with_log_det(
        self, t: Float[Array, " dim"], w: Float[Array, " data"]
    ) -> tuple[Float[Array, " data"], Float[Array, ""]]:
        """Return the coordinates v of w, given t, and log |det dv/dw|."""

    @abc.abstractmethod
    def unwhiten(self, t: Float[Array, " dim"], v: Float[Array, " data"]) -> Float[Array, " data"]:
        """Return w at the coordinates v, given t."""

    @abc.abstractmethod
    def log_density_whitened(self, v: Float[Array, " data"]) -> Float[Array, ""]:
        """Return the log-density of v, which must not depend on t."""

    @abc.abstractmethod
    def draws_whitened(self, key: PRNGKeyArray, n: int) -> Float[Array, "n data"]:
        """Draw n of v, so that each `unwhiten(t, v)` is a draw of q0(. | t)."""

    @abc.abstractmethod
    def features(self, t: Float[Array, " dim"], w: Float[Array, " data"]) -> Float[Array, " seen"]:
        """Return r, what an energy sees of w next to t: as many numbers as w has, but for `TwoViews`."""

    @abc.abstractmethod
    def features_whitened(self, t: Float[Array, " dim"], v: Float[Array, " data"]) -> Float[Array, " seen"]:
        """Return r at the coordinates v, without the detour over w."""

    def sees_whitened(self) -> bool:
        """Return whether `features` are v itself."""
        return False

    def seen(self, v: Float[Array, " data"]) -> Float[Array, " data"]:
        """Return v as an energy sees it, if its features have v among them: as it is, for most."""
        return v

    def gives_cells(self) -> bool:
        """Return whether `log_cell_density` is exact."""
        return False

    def log_cell_density(self, t: Float[Array, " dim"], cell: Float[Array, "5 data"]) -> Float[Array, ""]:
        """Return the log of the mean density over a cell (`unle.models.autoregressive`); here, that in its middle."""
        return self.log_density(t, cell[1])

    def whiten(self, t: Float[Array, " dim"], w: Float[Array, " data"]) -> Float[Array, " data"]:
        """Return the coordinates v of w, given t."""
        return self.whiten_with_log_det(t, w)[0]

    def log_density(self, t: Float[Array, " dim"], w: Float[Array, " data"]) -> Float[Array, ""]:
        """Return log q0(w | t) = log q0(v) + log |det dv/dw|."""
        v, log_det = self.whiten_with_log_det(t, w)
        return self.log_density_whitened(v) + log_det

    def log_density_and_features(
        self, t: Float[Array, " dim"], w: Float[Array, " data"]
    ) -> tuple[Float[Array, ""], Float[Array, " seen"]]:
        """Return both; where they have something in common, it need not be done twice."""
        return self.log_density(t, w), self.features(t, w)


class AbstractBaseWrapper(AbstractBase):
    """A base made of another one, with the same coordinates; to make one, say what an energy sees."""

    base: eqx.AbstractVar[AbstractBase]

    def whiten_with_log_det(self, t, w):
        return self.base.whiten_with_log_det(t, w)

    def unwhiten(self, t, v):
        return self.base.unwhiten(t, v)

    def log_density_whitened(self, v):
        return self.base.log_density_whitened(v)

    def draws_whitened(self, key, n):
        return self.base.draws_whitened(key, n)


class FixedMeasure(AbstractBase):
    """The wide Gaussian N(0, s^2 I) on standardised data, whatever theta is.

    With it the energy has to learn everything, as in the original AUNLE; the measure only makes exp(-E) integrable.
    """

    centre: Float[Array, " data"]  # zeros, of the length of w
    scale: Float[Array, ""]  # the standard deviation s

    def whiten_with_log_det(self, t, w):
        """Return w itself: standardised data need no other coordinates."""
        return w, jnp.zeros((), w.dtype)

    def unwhiten(self, t, v):
        return v

    def log_density_whitened(self, v):
        return -0.5 * jnp.sum(jnp.square(v / self.scale)) - v.shape[0] * (0.5 * LOG_2PI + jnp.log(self.scale))

    def draws_whitened(self, key, n):
        return self.centre + self.scale * normals(key, n, self.centre.shape[0])

    def sees_whitened(self):
        return True

    def features(self, t, w):
        return w

    def features_whitened(self, t, v):
        return v


class ConditionalGaussian(AbstractBase):
    """A Gaussian whose mean and covariance depend on theta, around a linear fit.

    The linear part (fitted in closed form, with a shrunken covariance) gives residuals of unit covariance,

        r = P (w - b - A' t),

    and a correction turns them into v ~ N(0, I): nothing, a polynomial or a network of t, see
    `unle.models.corrections`.

    Energies see r: shapes are simpler next to data than next to residuals of a mean that wiggles.  `TwoViews` lets them
    see v besides.
    """

    intercept: Float[Array, " data"]  # b, shape (k,)
    slope: Float[Array, "dim data"]  # A, shape (d, k)
    whitener: Float[Array, "data data"]  # P, lower triangular, shape (k, k)
    correction: AbstractCorrection  # from r to v

    def sees_whitened(self):
        return isinstance(self.correction, NoCorrection)

    def features(self, t, w):
        return self.whitener @ (w - self.intercept - t @ self.slope)

    def whiten_with_log_det(self, t, w):
        v, log_det = self.correction(t, self.features(t, w))
        return v, log_det + jnp.sum(jnp.log(jnp.diagonal(self.whitener)))

    def unwhiten(self, t, v):
        r = self.features_whitened(t, v)
        return self.intercept + t @ self.slope + solve_triangular(self.whitener, r, lower=True)

    def features_whitened(self, t, v):
        return self.correction.inverse(t, v)

    def log_density_whitened(self, v):
        return -0.5 * jnp.sum(jnp.square(v)) - 0.5 * v.shape[0] * LOG_2PI

    def draws_whitened(self, key, n):
        return normals(key, n, self.intercept.shape[0])


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
    """A base whose residuals v have heavy tails, several modes or skewness, coordinate by coordinate.

        q0(v) = prod_j sum_c a_jc N(v_j; m_jc, s_jc^2)

    A tilt by a bounded energy keeps the tails of its base, so the base must have the data's tails: otherwise outliers
    pull the energy down where no particle ever goes, and mass that nobody counts collects there.  Energies see
    residuals with their tails drawn in.
    """

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
    """Repeated measurements, with one density for each of them: q0(w | t) = prod_b q(w_b | t).

    The blocks w_b are coordinates of w that were found to be alike (`unle.space.repeated_blocks`); q was fitted to all
    of them.
    """

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

    def gives_cells(self):
        return self.one.gives_cells()

    def log_cell_density(self, t, cell):
        of_blocks = jnp.moveaxis(cell[:, np.array(self.blocks)], 1, 0)
        return jnp.sum(jax.vmap(lambda part: self.one.log_cell_density(t, part))(of_blocks))

    def _apart(self, w: Float[Array, " data"]) -> Float[Array, "block part"]:
        return w[np.array(self.blocks)]

    def _together(self, parts: Float[Array, "block part"]) -> Float[Array, " data"]:
        return parts.ravel()[np.argsort(np.ravel(self.blocks))]


class AbstractView(AbstractBaseWrapper):
    """A base whose last feature is the squared distance |v|^2; to make one, say what stands before it.

        r = P (w - b - A' t)   next to it shapes that stay where they are in the data are simple,
        v = T(t) (r - m(t))    next to it shapes that move and scale with the simulator are.

    An energy that sees r alone has to learn from the data where the base has moved to; one that sees v alone, to undo
    its wiggles.  With both it takes what it needs.  The distance is not an input of its network: beyond the distances
    that draws of the base reach, an energy fades out (`unle.models.likelihood`).
    """

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


def without_views(base: AbstractBase) -> AbstractBase:
    """Return the base without what says what an energy sees of w."""
    return without_views(base.base) if isinstance(base, AbstractView) else base


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
