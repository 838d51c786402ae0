r"""A base for long data: one coordinate after the other, by one network for all of them.

    q0(w | t) = prod_s q(r_s | r_1 .. r_(s-1), t),    q a mixture of normals

r are residuals of a linear fit, coordinate by coordinate.  The network sees t, the position s, and (if it helps) what
came before s.  It gives the mixture at s, and weights of a sum over the past, which is added to its means: with weights
that depend on t this is every linear recursion in time, hidden states included.  Since the positions share the network,
n simulations of length k are n k examples of one density of a single number.

The past enters through a few sums: the latest values, means that forget at several rates, and the mean of all.  They
are what a recursion needs, and readings that share a shift.  The spread of the past, which the network may see besides,
is what readings need that share a scale.

Noise may end sharply.  Components are then normals blurred over intervals, N(m, s^2) * U(-s h, s h): nearly normal for
small h, nearly uniform for large.  Their distribution function is (G(z + h) - G(z - h)) / 2 h, with z = (r - m) / s and
G the integral of Phi.

Coordinates v_s are standard normal: v_s = Phi^-1(F(r_s)), F the distribution function of the mixture.

Counts and other discrete data are spread evenly over cells before the fit.  Where in its cell a value came to lie says
nothing about the others, so the density of r_s depends on the cells of the past alone, and the probability of a cell is
a product of integrals over one number each, with the past in the middle of its cells:

    P(cell | t) = prod_s [F_s(r_s at the upper end) - F_s(r_s at the lower end)].

Where data pile up at the lowest or the highest value (0 of 8, 8 of 8), nothing lies beyond, and the cell has no end on
that side: F_s is 0 or 1 there.
"""

from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr, logsumexp, ndtr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from unle.models.bases import LOG_2PI, AbstractBase
from unle.models.mlp import Mlp, normals
from unle.space.standardise import Standardiser

COMPONENTS = 4
LAGS = (1, 2, 3)  # values of the past that are seen one by one
DECAYS = (0.5, 0.75, 0.9)  # factors per step by which means of the past forget
SUMS = len(LAGS) + len(DECAYS) + 1
SPREADS = 2  # of the past: about its mean, and from step to step
POSITIONS = 7  # numbers that say where s is
MAX_LOG_SCALE = 9.0
SHARPEST, FIRST_WIDTH = 200.0, -6.0  # the largest h; the first one is half a standard deviation
SMALLEST_VARIANCE = 1e-4  # of the past, in the network's eyes
LINEAR_RANGE = 3.0  # values of the past that a network sees nearly as they are; beyond, their logarithm
HALVINGS, NEWTON_STEPS = 30, 6
NARROW = 0.02  # standard deviations of a component: its density at the middle gives the mass of a narrower cell
FAR = 20.0  # standard deviations
FAR_FOR_SUMS = 8.0  # likewise, beyond which z Phi(z) and phi(z) cancel
# What is told of a cell, coordinate by coordinate; the last two are 1 where it has no end on that side, or else 0.
CELL_ROWS = ("lower end", "middle", "upper end", "is lowest", "is highest")


class Mixture(NamedTuple):
    """A mixture of normals of one number, or of normals that are blurred over intervals: N(m, s^2) * U(-s h, s h)."""

    log_weights: Float[Array, " component"]
    means: Float[Array, " component"]
    log_scales: Float[Array, " component"]
    half_widths: Float[Array, " component"] | None = None  # h; None if they are normals


class Autoregressive(AbstractBase):
    """Mixtures of normals, one coordinate after the other.

    y = w, or w without its marginal transforms,    r = (y - b - A' t) / c
    """

    intercept: Float[Array, "*member data"]  # b
    slope: Float[Array, "*member dim data"]  # A
    spread: Float[Array, "*member data"]  # c
    net: Mlp  # of t, the position and the past
    sees_past: Float[Array, "*member"]  # 1 if the network sees the past, 0 if only the sum over it does
    # that w was made with, if transforms are undone; data that are normal on their own scale may have been transformed
    # because theta spreads them over decades
    standardiser: Standardiser | None = None

    @staticmethod
    def sizes(dim_theta: int, *, has_ends: bool = False) -> tuple[int, int]:
        """Return how many numbers the network takes, and gives."""
        return dim_theta + POSITIONS + SUMS + SPREADS, (4 if has_ends else 3) * COMPONENTS + SUMS

    @property
    def has_ends(self) -> bool:
        """Whether components may end sharply."""
        return self.net.biases[-1].shape[-1] == 4 * COMPONENTS + SUMS

    def whiten_with_log_det(self, t, w):
        """Return v and log |det dv/dw|."""
        r, log_det = self.residuals(t, w)
        v, log_densities = jax.vmap(_to_normal)(r, self._mixtures(t, r))
        return v, jnp.sum(log_densities) - self.log_density_whitened(v) + log_det

    def log_density(self, t, w):
        """Return the sum of the log-densities of all coordinates."""
        r, log_det = self.residuals(t, w)
        return jnp.sum(jax.vmap(_log_density)(r, self._mixtures(t, r))) + log_det

    def gives_cells(self):
        return not self.has_ends  # masses are those of normals

    def log_cell_density(self, t: Float[Array, " dim"], cell: Float[Array, "5 data"]) -> Float[Array, ""]:
        """Return the log of the mean density over a cell; of its `CELL_ROWS`, the first three are w.

        Coordinates of which these are the same have no cell: they count by their density.
        """
        r, log_det = self._cell_residuals(t, cell)
        return jnp.sum(jax.vmap(_log_cell, in_axes=(1, 0))(r, self._mixtures(t, r[1]))) + log_det

    def unwhiten(self, t, v):
        """Return w at v, one coordinate after the other."""

        def fill(r, s):
            return r.at[s].set(_quantile(v[s], self.mixture(t, r, s))), None

        r, _ = jax.lax.scan(fill, jnp.zeros_like(v), jnp.arange(v.shape[0]))
        y = self.intercept + t @ self.slope + self.spread * r
        return y if self.standardiser is None else self.standardiser.forward(y)

    def log_density_whitened(self, v):
        """Return log N(v; 0, I)."""
        return -0.5 * jnp.sum(jnp.square(v)) - 0.5 * v.shape[0] * LOG_2PI

    def draws_whitened(self, key: PRNGKeyArray, n: int):
        """Draw from N(0, I)."""
        return normals(key, n, self.intercept.shape[0])

    def sees_whitened(self):
        """Return True: energies see v."""
        return True

    def features(self, t, w):
        """Return v."""
        return self.whiten(t, w)

    def features_whitened(self, t, v):
        """Return v."""
        return v

    def residuals(
        self, t: Float[Array, " dim"], w: Float[Array, " data"]
    ) -> tuple[Float[Array, " data"], Float[Array, ""]]:
        """Return r, and log |det dr/dw|."""
        y, log_det = w, -jnp.sum(jnp.log(self.spread))
        if self.standardiser is not None:
            y = self.standardiser.inverse(w)
            log_det = log_det - self.standardiser.log_det(y)
        return (y - self.intercept - t @ self.slope) / self.spread, log_det

    def log_conditional(self, t: Float[Array, " dim"], r: Float[Array, " data"], s: Int[Array, ""]) -> Float[Array, ""]:
        """Return the log-density of r_s, given what comes before it."""
        return _log_density(r[s], self.mixture(t, r, s))

    def log_cell_conditional(
        self, t: Float[Array, " dim"], cell: Float[Array, "5 data"], s: Int[Array, ""]
    ) -> Float[Array, ""]:
        """Return the log of the mean density over the cell of r_s, given what comes before it."""
        r, _ = self._cell_residuals(t, cell)
        return _log_cell(r[:, s], self.mixture(t, r[1], s))

    def mixture(self, t: Float[Array, " dim"], r: Float[Array, " data"], s: Int[Array, ""]) -> Mixture:
        """Return the distribution of r_s; later entries of r do not matter."""
        weights, where = (jnp.asarray(table, r.dtype) for table in _tables(r.shape[0]))
        sums, of_squares = weights[s] @ r, weights[s, -1] @ jnp.square(r)
        steps = jnp.square(jnp.diff(r, prepend=r[:1]))
        spreads = _log_sd(jnp.stack([of_squares - jnp.square(sums[-1]), weights[s, -1] @ steps]))
        past = jnp.concatenate([LINEAR_RANGE * jnp.arcsinh(sums / LINEAR_RANGE), jnp.where(s > 1, spreads, 0.0)])
        out = self.net(jnp.concatenate([t, where[s], jax.lax.stop_gradient(self.sees_past) * past]))
        of_components, weights = out[:-SUMS].reshape(-1, COMPONENTS), out[-SUMS:]
        logits, means, log_scales = of_components[:3]
        apart = jnp.linspace(-1.0, 1.0, COMPONENTS)  # components that began alike would stay alike
        means = means + 0.2 * apart + weights @ sums
        log_scales = MAX_LOG_SCALE * jnp.tanh((log_scales + 0.2 * apart) / MAX_LOG_SCALE)
        if not self.has_ends:
            return Mixture(jax.nn.log_softmax(logits), means, log_scales)
        half_widths = SHARPEST * jax.nn.sigmoid(of_components[3] + FIRST_WIDTH)
        log_scales = log_scales - 0.5 * jnp.log1p(jnp.square(half_widths) / 3)  # until here that of the whole component
        return Mixture(jax.nn.log_softmax(logits), means, log_scales, half_widths)

    def _cell_residuals(self, t, cell) -> tuple[Float[Array, "5 data"], Float[Array, ""]]:
        """Return r at both ends and in the middle of a cell, which ends are open, and log |det dr/dw| in the middle."""
        (lower, _), (middle, log_det), (upper, _) = (self.residuals(t, w) for w in cell[:3])
        return jnp.stack([lower, middle, upper, *cell[3:]]), log_det

    def _mixtures(self, t, r) -> Mixture:
        return jax.vmap(lambda s: self.mixture(t, r, s))(jnp.arange(r.shape[0]))


@lru_cache(maxsize=8)
def _tables(k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return weights of the sums over the past, (k, SUMS, k), and what says where a position is, (k, POSITIONS)."""
    s, past = np.arange(k)[:, None], np.arange(k)[None]
    earlier = past < s
    kinds = [past == s - lag for lag in LAGS] + [earlier * decay ** np.maximum(s - past, 0) for decay in (*DECAYS, 1.0)]
    weights = np.stack([np.asarray(kind, float) for kind in kinds], axis=1)
    weights /= np.maximum(weights.sum(axis=2, keepdims=True), 1e-12)
    s, u = s[:, 0], (s[:, 0] + 0.5) / k
    where = [2 * u - 1, 2 / (1 + s) - 0.5, s == 0, s == 1, *(np.cos(np.pi * j * u) for j in (2, 3, 4))]
    return weights, np.stack([np.asarray(column, float) for column in where], axis=1)


def _log_sd(variances: Float[Array, " spread"]) -> Float[Array, " spread"]:
    return 0.5 * jnp.log(jnp.maximum(variances, 0.0) + SMALLEST_VARIANCE)


def _log_density(r: Float[Array, ""], mixture: Mixture) -> Float[Array, ""]:
    z = (r - mixture.means) * jnp.exp(-mixture.log_scales)
    if mixture.half_widths is None:
        logs = -0.5 * jnp.square(z) - 0.5 * LOG_2PI
    else:
        logs = _log_interval(z - mixture.half_widths, z + mixture.half_widths) - jnp.log(2 * mixture.half_widths)
    return logsumexp(mixture.log_weights + logs - mixture.log_scales)


def _log_distribution(z: Float[Array, " component"], mixture: Mixture) -> Float[Array, ""]:
    """Return log F at z, which is in units of every component."""
    if mixture.half_widths is None:
        return logsumexp(mixture.log_weights + log_ndtr(z))
    upper, lower = _log_integral(z + mixture.half_widths), _log_integral(z - mixture.half_widths)
    logs = upper + jnp.log1p(-jnp.exp(lower - upper)) - jnp.log(2 * mixture.half_widths)
    return logsumexp(mixture.log_weights + logs)


def _log_integral(z: Float[Array, " component"]) -> Float[Array, " component"]:
    """Return the log of the integral of Phi up to z, z Phi(z) + phi(z); far out by its expansion."""
    near, far = jnp.maximum(z, -FAR_FOR_SUMS), jnp.minimum(z, -FAR_FOR_SUMS)
    phi = jnp.exp(-0.5 * jnp.square(near)) / jnp.sqrt(2 * jnp.pi)
    inverse = jnp.square(1 / far)
    expansion = inverse * (1 - inverse * (3 - inverse * (15 - 105 * inverse)))
    in_tail = jnp.log(expansion) - 0.5 * jnp.square(far) - 0.5 * LOG_2PI
    return jnp.where(z < -FAR_FOR_SUMS, in_tail, jnp.log(near * ndtr(near) + phi))


def _log_cell(r: Float[Array, " 5"], mixture: Mixture) -> Float[Array, ""]:
    """Return the log of the mean density over one cell, or the log-density where there is none."""
    lower, middle, upper, is_lowest, is_highest = r
    is_cell = upper > lower
    upper = jnp.where(is_cell, upper, lower + 1)
    log_mass = _log_mass(lower, upper, mixture, is_lowest > 0, is_highest > 0)
    return jnp.where(is_cell, log_mass - jnp.log(upper - lower), _log_density(middle, mixture))


def _log_mass(lower: Float[Array, ""], upper: Float[Array, ""], mixture: Mixture, is_lowest, is_highest):
    """Return log (F(upper) - F(lower)); F = 0 at the lower end of the lowest cell, 1 at the top of the highest."""
    scales = jnp.exp(-mixture.log_scales)
    low, high = (lower - mixture.means) * scales, (upper - mixture.means) * scales
    closed = _log_interval(low, high)
    in_tail = jnp.where(is_lowest, jnp.where(is_highest, 0.0, log_ndtr(high)), log_ndtr(-low))
    return logsumexp(mixture.log_weights + jnp.where(is_lowest | is_highest, in_tail, closed))


def _log_interval(low: Float[Array, " component"], high: Float[Array, " component"]) -> Float[Array, " component"]:
    """Return log (Phi(high) - Phi(low)), from the nearer tail, so that no probability is rounded to 1."""
    middle, width = 0.5 * (low + high), high - low
    near, far = -jnp.abs(middle) + 0.5 * width, -jnp.abs(middle) - 0.5 * width  # Phi(near) - Phi(far)
    is_narrow = width < NARROW
    near = jnp.where(is_narrow, far + 1, near)
    top, bottom = log_ndtr(near), log_ndtr(far)
    wide = top + jnp.log1p(-jnp.exp(bottom - top))
    bend = (jnp.square(middle) - 1) * jnp.square(width) / 24  # of the density, to second order
    narrow = jnp.log(jnp.maximum(width, 1e-30)) - 0.5 * jnp.square(middle) + bend - 0.5 * LOG_2PI
    return jnp.where(is_narrow, narrow, wide)


def _to_normal(r: Float[Array, ""], mixture: Mixture) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return Phi^-1(F(r)), and log F'(r); from the nearer tail, so that no probability is rounded to 1."""
    z = (r - mixture.means) * jnp.exp(-mixture.log_scales)
    below, above = (_log_distribution(side, mixture) for side in (z, -z))
    lower = _lower_quantile(jnp.minimum(jnp.minimum(below, above), jnp.log(0.5)))
    return jnp.where(below < above, lower, -lower), _log_density(r, mixture)


def _quantile(v: Float[Array, ""], mixture: Mixture) -> Float[Array, ""]:
    """Return r with Phi^-1(F(r)) = v, which lies between those of the single components."""
    widths = 0.0 if mixture.half_widths is None else mixture.half_widths
    lowest, highest = (mixture.means + jnp.exp(mixture.log_scales) * (v + side) for side in (-widths, widths))

    def halve(_, bounds):
        middle = 0.5 * (bounds[0] + bounds[1])
        is_low = _to_normal(middle, mixture)[0] < v
        return jnp.where(is_low, middle, bounds[0]), jnp.where(is_low, bounds[1], middle)

    low, high = jax.lax.fori_loop(0, HALVINGS, halve, (jnp.min(lowest), jnp.max(highest)))
    return 0.5 * (low + high)


@jax.custom_jvp
def _lower_quantile(log_p: Float[Array, ""]) -> Float[Array, ""]:
    """Return v <= 0 with log Phi(v) = log p, by Newton's method from below: log Phi is concave."""
    v = -jnp.sqrt(jnp.maximum(-2 * (log_p + jnp.log(2.0)), 0.0))
    for _ in range(NEWTON_STEPS):
        v = v - (log_ndtr(v) - log_p) * _mills(v)
    return jnp.minimum(v, 0.0)


def _mills(v: Float[Array, ""]) -> Float[Array, ""]:
    """Return Phi(v) / phi(v), v <= 0; far out by its expansion, where both are beyond the precision of a float."""
    far = jnp.minimum(v, -FAR)
    near = jnp.exp(log_ndtr(v) + 0.5 * jnp.square(jnp.maximum(v, -FAR)) + 0.5 * LOG_2PI)
    return jnp.where(v < -FAR, (jnp.square(far) - 1) / -(far**3), near)


@_lower_quantile.defjvp
def _slope_of_quantile(primals, tangents):
    (log_p,), (change,) = primals, tangents
    v = _lower_quantile(log_p)
    return v, change * _mills(v)
