"""Single coordinates: transforms that tame heavy tails and wide ranges, and cells around discrete values.

**Marginal transforms.** Populations that span nine decades cannot be modelled on a linear scale, whatever the network;
on a log scale they are an ordinary problem. Each coordinate v gets one of

    identity         w = v
    log              w = log v                        continued linearly below a tiny positive floor
    asinh            w = asinh((v - c) / s)           linear near c, logarithmic on both sides beyond s
    Yeo-Johnson      w = YJ_p((v - c) / s)            a power on each side of c: p above, 2 - p below

with 0 <= p <= 2. All of them are smooth and map R onto R, so an observation outside the training range never
gives NaN and every w has an inverse. `choose_marginals` picks from training values, on the host, in float64.

**Cells** of counts, yes or no, rounded readings, exact zeros.  A density could grow without end at such a value.  So
the value is spread over a cell, and its probability is the integral of the density over that cell:

- A lattice (whole numbers, multiples of a step h): x becomes x + h (u - 1/2), u uniform on (0, 1).
- An atom a of other data, such as a zero for everything below a threshold: a cell of width c is pushed in at a,

      x < a: x,    x = a: a + c u,    x > a: x + c.

Both may be true of one coordinate: counts with more zeros than a count has.

- Levels, a few values on no lattice, or far apart on one (titres 1, 2, 4, .. 512): the cell of each reaches halfway to
  its neighbours.
"""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int
from scipy.special import ndtri

from unle.compiling import on_device
from unle.errors import InputError

KINDS = ("identity", "log", "asinh", "Yeo-Johnson")  # from simplest to most flexible; the index is the code
IDENTITY, LOG, ASINH, YEO_JOHNSON = range(4)

# Nats per datum that a transform must gain to replace the identity. A likelihood that is Gaussian given theta
# often has mildly heavy-tailed marginals (a scale mixture of kurtosis 6 gains 0.08) and is best left alone.
GAIN = 0.25
# The result must also look normal, by its squared correlation with normal scores, and have at most this part
# of the raw values' departure from normality left: two clusters gain as well, by being pulled together, but
# stay far from normal. Log has no knob to turn and is natural for positive quantities: less is asked of it.
NORMALITY = {LOG: 0.80, ASINH: 0.97, YEO_JOHNSON: 0.97}
DEPARTURE_LEFT = {LOG: 1.0, ASINH: 0.5, YEO_JOHNSON: 0.5}
# With a gain this large the raw scale is hopeless, and the result need not look normal; nor need it after a
# logarithm of positive values spread over this many decades, between their quantiles 0.01 and 0.99.
LARGE_GAIN = 0.75
DECADES = 3.0
# Above this correlation the raw values are so close to normal that no transform gains anything worth having.
ALREADY_NORMAL = 0.97
# A simpler transform is taken when it comes this close, in nats per datum, to the best one.
MARGIN = 0.05
ROWS = 10_000  # rows used for the choice; the gain is then known to about 0.01

ASINH_SCALES = (0.1, 0.3, 1.0, 3.0)  # s, in units of the robust spread
POWERS = tuple(float(power) for power in np.linspace(0.0, 2.0, 11))
FLOOR_BELOW_SMALLEST = 1e-3  # log turns linear at this fraction of the smallest training value,
SMALLEST_FLOOR = 1e-25  # and not lower than this, so that 1 / floor leaves float32 room for the data
LARGEST_EXPONENT = 80.0  # exp of it is within float32

MAX_ATOMS = 3  # of one coordinate
MIN_ROWS = 50  # with fewer, ties are chance
ATOM_SHARE = 0.05  # of the rows that must have a value for it to be an atom, among data that tie anyway
RARE_SHARE, RARE_ROWS = 0.005, 10  # the same, and the fewest rows, where hardly any other value occurs twice
NEARLY_ALL = 0.99  # of the distinct values
MOST_LEVELS, MOST_NEIGHBOURS = 32, 0.5  # values, and share of them that are neighbours on a lattice
PILED_SHARE, FEWEST_PILED = 0.02, 3  # rows that must have the lowest or the highest value for nothing to lie beyond it
ATOM_RATIO = 3.0  # an atom on a lattice is so many times as frequent as the values beside it
DISTINCT_SHARE = 0.5  # of the rows; data with fewer distinct values are on a lattice if they are multiples of a step
LATTICE_TOLERANCE = 0.01  # distance of a value from a multiple of the step, in steps; it is rounded
MAX_STEPS = 1e4  # from the smallest to the largest value; single precision tells no more apart
# Where the distances of other values from an atom differ by this factor, its cell is at most so many times the distance
# below which a tenth of them lie.
DISTANCE_RATIO, MAX_DISTANCES = 100.0, 2.0
WIDTHS = 0.1, 1.0  # the narrowest and the widest cell of an atom, in units of the other values' spread


class Marginals(eqx.Module):
    """One monotone transform per coordinate, held as arrays so that a single elementwise function serves all."""

    kind: Int[Array, " dim"]  # index into `KINDS`, shape (d,)
    centre: Float[Array, " dim"]  # c of asinh and Yeo-Johnson (0 elsewhere)
    scale: Float[Array, " dim"]  # s of asinh and Yeo-Johnson (1 elsewhere)
    floor: Float[Array, " dim"]  # value below which log continues linearly (1 elsewhere)
    power: Float[Array, " dim"]  # p of Yeo-Johnson (1, its identity, elsewhere)

    def forward(self, v: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """Return w(v), increasing and finite in every coordinate."""
        return _forward_and_log_slope(jnp, self, v)[0]

    def log_det(self, v: Float[Array, " dim"]) -> Float[Array, ""]:
        """Return sum_i log |dw_i / dv_i|."""
        return jnp.sum(_forward_and_log_slope(jnp, self, v)[1])

    def inverse(self, w: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """Return v(w)."""
        z = jnp.clip(w, -LARGEST_EXPONENT, LARGEST_EXPONENT)
        by_asinh = self.centre + self.scale * jnp.sinh(z)
        by_power = self.centre + self.scale * _inverse_yeo_johnson(w, self.power)
        return _pick(jnp, self.kind, w, _inverse_log(w, self.floor), by_asinh, by_power)

    def forward_table(self, values: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n dim"]:
        """Return w of many rows on the host, in float64, for fitting what comes next."""
        w = np.array(values, np.float64)
        bent = np.flatnonzero(np.asarray(self.kind) != IDENTITY)  # no others are computed: there may be many rows
        own = jax.tree.map(lambda leaf: np.asarray(leaf)[bent], self)
        w[:, bent] = _forward_and_log_slope(np, own, w[:, bent])[0]
        return w

    def names(self) -> tuple[str, ...]:
        """Return the name of every coordinate's transform."""
        return tuple(KINDS[int(kind)] for kind in np.asarray(self.kind))


def identity_marginals(dim: int) -> Marginals:
    """Return transforms that change nothing."""
    ones = on_device(np.ones(dim), jnp.result_type(float))
    return Marginals(on_device(np.full(dim, IDENTITY), np.int32), 0 * ones, ones, ones, ones)


def choose_marginals(values: ArrayLike, *, gain: float = GAIN) -> Marginals:
    """Choose a transform for every coordinate from training values.

    A candidate is scored by the log-likelihood per datum of a normal fitted to w, with the Jacobian,

        score = mean log |dw/dv| - log sd(w),

    and replaces the identity if it gains more than `gain` and if w looks more normal than v (the constants of
    this module say how much). Among candidates within a small margin of the best, the simplest is taken.
    """
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 2 or values.shape[0] < 2 or values.shape[1] < 1:
        raise InputError(f"expected training values of shape (n, d) with n > 1; got {values.shape}.")
    if not np.all(np.isfinite(values)):
        raise InputError("expected finite training values; got NaN or infinity; drop the failed simulations first.")
    if len(values) > ROWS:  # at random: simulations may come in an order, round by round
        values = values[np.random.default_rng(0).permutation(len(values))[:ROWS]]
    chosen = [_choose(column, gain) for column in values.T]
    kinds, *parameters = (np.array(column) for column in zip(*chosen, strict=True))
    centre, scale, floor, power = (on_device(column, jnp.result_type(float)) for column in parameters)
    return Marginals(kind=on_device(kinds, np.int32), centre=centre, scale=scale, floor=floor, power=power)


def _choose(v: np.ndarray, gain: float) -> tuple[int, float, float, float, float]:
    """Return (kind, centre, scale, floor, power) for one coordinate."""
    plain = (IDENTITY, 0.0, 1.0, 1.0, 1.0)
    if np.ptp(v) == 0:
        return plain
    v = _without_ties(v)
    straightness = _normality(v)
    if straightness > ALREADY_NORMAL:
        return plain
    raw_score = -np.log(np.std(v))
    accepted = []
    for score, w, parameters in _candidates(v):
        kind, gained, normality = parameters[0], score - raw_score, _normality(w)
        large = gained > LARGE_GAIN
        straighter = 1 - normality <= DEPARTURE_LEFT[kind] * (1 - straightness)
        natural = kind == LOG and (large or np.ptp(np.quantile(w, [0.01, 0.99])) > DECADES * np.log(10))
        if gained > gain and (natural or (straighter and (large or normality >= NORMALITY[kind]))):
            accepted.append((score, parameters))
    if not accepted:
        return plain
    best = max(score for score, _ in accepted)
    return min(parameters for score, parameters in accepted if score >= best - MARGIN)


def _candidates(v: np.ndarray):
    """Yield (score, w, parameters) for the best member of every family."""
    centre, spread = float(np.median(v)), _spread(v)
    if np.all(v > 0):
        floor = max(FLOOR_BELOW_SMALLEST * float(np.min(v)), SMALLEST_FLOOR)
        yield _scored(*_log(np, v, floor), (LOG, 0.0, 1.0, floor, 1.0))
    yield max(
        (
            _scored(*_asinh(np, v, centre, unit * spread), (ASINH, centre, unit * spread, 1.0, 1.0))
            for unit in ASINH_SCALES
        ),
        key=lambda candidate: candidate[0],
    )
    yield max(
        (
            _scored(*_yeo_johnson(np, v, centre, spread, power), (YEO_JOHNSON, centre, spread, 1.0, power))
            for power in POWERS
        ),
        key=lambda candidate: candidate[0],
    )


def _scored(w: np.ndarray, log_slope: np.ndarray, parameters):
    return float(np.mean(log_slope) - np.log(np.std(w))), w, parameters


def _without_ties(v: np.ndarray) -> np.ndarray:
    """Spread counts and other lattice values over their cells: a density at an atom would score infinity."""
    distinct = np.unique(v)
    if len(distinct) > 0.9 * len(v):
        return v
    cell = np.min(np.diff(distinct))
    if distinct[0] > 0:
        cell = min(cell, distinct[0])
    return v + cell * np.random.default_rng(0).uniform(-0.5, 0.5, len(v))


def _spread(v: np.ndarray) -> float:
    """Return a robust standard deviation: the first of several that is not zero."""
    q05, q25, q75, q95 = np.quantile(v, [0.05, 0.25, 0.75, 0.95])
    return float((q75 - q25) / 1.349 or (q95 - q05) / 3.290 or np.std(v))


def _normality(w: np.ndarray) -> float:
    """Return the squared correlation of the sorted values with normal scores (Shapiro and Francia)."""
    n = len(w)
    scores = ndtri((np.arange(1, n + 1) - 0.375) / (n + 0.25))
    centred = np.sort(w) - np.mean(w)
    return float((centred @ scores) ** 2 / ((centred @ centred) * (scores @ scores)))


# The transforms, each returning (w, log dw/dv). `xp` is numpy for the choice and jax.numpy for the use of it.


def _forward_and_log_slope(xp, marginals: Marginals, v):
    by_log = _log(xp, v, marginals.floor)
    by_asinh = _asinh(xp, v, marginals.centre, marginals.scale)
    by_power = _yeo_johnson(xp, v, marginals.centre, marginals.scale, marginals.power)
    w = _pick(xp, marginals.kind, v, by_log[0], by_asinh[0], by_power[0])
    return w, _pick(xp, marginals.kind, xp.zeros_like(v), by_log[1], by_asinh[1], by_power[1])


def _pick(xp, kind, by_identity, by_log, by_asinh, by_power):
    """Take each coordinate from its own transform.

    The others were evaluated at harmless parameters and are finite there, so no NaN leaks into gradients.
    """
    bent = xp.where(kind == ASINH, by_asinh, by_power)
    return xp.where(kind == IDENTITY, by_identity, xp.where(kind == LOG, by_log, bent))


def _log(xp, v, floor):
    held = xp.maximum(v, floor)
    return xp.log(held) + (xp.minimum(v, floor) - floor) / floor, -xp.log(held)


def _inverse_log(w, floor):
    turn = jnp.log(floor)
    above = jnp.exp(jnp.minimum(jnp.maximum(w, turn), LARGEST_EXPONENT))
    return above + (jnp.minimum(w, turn) - turn) * floor


def _asinh(xp, v, centre, scale):
    w = xp.arcsinh((v - centre) / scale)
    log_cosh = xp.logaddexp(w, -w) - math.log(2.0)  # sqrt(1 + z^2) = cosh w, without the overflow of z^2
    return w, -log_cosh - xp.log(scale)


def _yeo_johnson(xp, v, centre, scale, power):
    z = (v - centre) / scale
    upper = z >= 0
    log_size = xp.log1p(xp.where(upper, z, -z))
    exponent = xp.where(upper, power, 2.0 - power)
    logarithmic = exponent == 0
    divisor = xp.where(logarithmic, 1.0, exponent)
    grown = xp.expm1(xp.minimum(exponent * log_size, LARGEST_EXPONENT)) / divisor
    size = xp.where(logarithmic, log_size, grown)
    return xp.where(upper, size, -size), (exponent - 1) * log_size - xp.log(scale)


def _inverse_yeo_johnson(w, power):
    upper = w >= 0
    size = jnp.where(upper, w, -w)
    exponent = jnp.where(upper, power, 2.0 - power)
    logarithmic = exponent == 0
    divisor = jnp.where(logarithmic, 1.0, exponent)
    log_size = jnp.where(logarithmic, size, jnp.log1p(exponent * size) / divisor)
    z = jnp.expm1(jnp.minimum(log_size, LARGEST_EXPONENT))
    return jnp.where(upper, z, -z)


class Cells(eqx.Module):
    """What is spread, for every coordinate of x."""

    step: Float[Array, " dim_x"]  # h of a lattice; 0 for none
    origin: Float[Array, " dim_x"]  # a value on the lattice
    atoms: Float[Array, "atom dim_x"]  # values a, in order; NaN for none
    widths: Float[Array, "atom dim_x"]  # c of each
    levels: Float[Array, "level dim_x"]  # values in order, the last one repeated; NaN for none
    edges: Float[Array, "edge dim_x"]  # ends of their cells, one more than there are levels
    ends: Float[Array, "2 dim_x"]  # lowest and highest value, where data pile up there; infinite elsewhere

    @classmethod
    def none(cls, dim_x: int) -> "Cells":
        """Return cells that spread nothing."""
        zeros, no_atoms = np.zeros(dim_x), np.zeros((0, dim_x))
        none = (no_atoms,) * 4
        return cls(*map(on_device, (zeros, zeros, *none, np.stack([zeros - np.inf, zeros + np.inf]))))

    @property
    def which(self) -> list[int]:
        """The coordinates that have cells."""
        is_atom, is_level = (np.isfinite(np.asarray(part)).any(axis=0) for part in (self.atoms, self.levels))
        return np.flatnonzero((np.asarray(self.step) > 0) | is_atom | is_level).tolist()

    def describe(self, i: int) -> str:
        """Say in a few words what is spread in coordinate i; nothing if nothing is."""
        step, atoms = float(self.step[i]), np.asarray(self.atoms)[:, i]
        levels = np.unique(np.asarray(self.levels)[:, i])
        words = [f"multiples of {step:.4g}"] if step > 0 else []
        words += [f"one of {len(levels)} values"] if np.isfinite(levels).any() else []
        words += [f"exactly {a:.4g} with positive probability" for a in atoms[np.isfinite(atoms)]]
        return "".join(f"{word}, " for word in words)

    def spread(self, x: Any, u: Any = 0.5) -> Any:
        """Return x with every value at the fraction u of its cell: rows or one row, NumPy or JAX, as x is."""
        library = np if isinstance(x, np.ndarray) else jnp
        step, atoms, widths = (library.asarray(part) for part in (self.step, self.atoms, self.widths))
        moved = x + step * (u - 0.5)
        for a, width in zip(atoms, widths, strict=True):
            moved = moved + width * library.where(x == a, u, x > a)
        if not len(self.levels):
            return moved
        levels, edges = library.asarray(self.levels), library.asarray(self.edges)
        inside, low, high = library.clip(x, levels[0], levels[-1]), edges[0], edges[-1]
        for edge, opposite in zip(edges, edges[::-1], strict=True):
            low = library.where(edge <= inside, edge, low)
            high = library.where(opposite > inside, opposite, high)
        return library.where(library.isnan(levels[0]), moved, low + u * (high - low))

    def gather(self, y: Any) -> Any:
        """Return the x that was spread to y: one row, NumPy or JAX, as y is."""
        library = np if isinstance(y, np.ndarray) else jnp
        step, origin, ends = (library.asarray(part) for part in (self.step, self.origin, self.ends))
        atoms, widths, levels, edges = (
            library.asarray(part) for part in (self.atoms, self.widths, self.levels, self.edges)
        )
        for a, width in zip(atoms, widths, strict=True):
            start = a - step / 2
            y = library.where(y > start + step + width, y - width, library.where(y >= start, a, y))
        h = library.where(step > 0, step, 1.0)
        x = library.where(step > 0, origin + h * library.round((y - origin) / h), y)
        for number, level in enumerate(levels):
            is_here = library.isfinite(level) if number == 0 else y >= edges[number]
            x = library.where(is_here, level, x)
        return library.clip(x, ends[0], ends[1])


def find_cells(x: Float[np.ndarray, "n dim_x"], groups: Int[np.ndarray, " dim_x"] | None = None) -> Cells:
    """Look for lattices and atoms in data; coordinates of the same group are looked at together.

    Example:
        >>> import numpy as np
        >>> from unle.space.marginals import find_cells
        >>> rng = np.random.default_rng(0)
        >>> x = np.column_stack([rng.poisson(3.0, 200), rng.normal(size=200), np.maximum(rng.normal(size=200), 0)])
        >>> cells = find_cells(x.astype(float))
        >>> cells.step.tolist(), cells.atoms.tolist()
        ([1.0, 0.0, 0.0], [[nan, nan, 0.0]])
    """
    x = x.astype(np.float32).astype(float)  # as an observation will be rounded
    groups = np.arange(x.shape[1]) if groups is None else np.unique(groups, return_inverse=True)[1]
    by_group = [_find_in_values(np.ravel(x[:, groups == group])) for group in range(groups.max() + 1)]
    most, most_levels = (max(len(part) for part in parts) for parts in list(zip(*by_group, strict=True))[2:4])
    step, origin, ends = np.zeros(x.shape[1]), np.zeros(x.shape[1]), np.zeros((2, x.shape[1]))
    atoms, widths = np.full((most, x.shape[1]), np.nan), np.zeros((most, x.shape[1]))
    levels, edges = (np.full((length, x.shape[1]), np.nan) for length in (most_levels, most_levels + bool(most_levels)))
    for group, (h, first, own, own_levels, own_ends) in enumerate(by_group):
        here = groups == group
        step[here], origin[here], ends[:, here] = h, first, np.reshape(own_ends, (2, 1))
        for i, (value, width) in enumerate(sorted(own)):
            atoms[i, here], widths[i, here] = value, width
        if len(own_levels):
            between = 0.5 * (own_levels[1:] + own_levels[:-1])
            own_edges = np.concatenate([[2 * own_levels[0] - between[0]], between, [2 * own_levels[-1] - between[-1]]])
            for table, values in ((levels, own_levels), (edges, own_edges)):
                table[:, here] = np.pad(values, (0, len(table) - len(values)), mode="edge")[:, None]
    return Cells(*map(on_device, (step, origin, atoms, widths, levels, edges, ends)))


class _Found(NamedTuple):
    step: float = 0.0  # of a lattice
    origin: float = 0.0
    atoms: tuple[tuple[float, float], ...] = ()  # with the widths of their cells
    levels: np.ndarray = np.zeros(0)
    ends: tuple[float, float] = (-np.inf, np.inf)  # at which data pile up


def _find_in_values(v: np.ndarray) -> _Found:
    values, counts = np.unique(v, return_counts=True)
    if len(v) < MIN_ROWS or not 1 < len(values) < len(v):
        return _Found()
    step = _step(values, len(v))
    ties = np.quantile(counts, NEARLY_ALL) > 1
    often = counts >= (ATOM_SHARE * len(v) if ties else max(RARE_SHARE * len(v), RARE_ROWS))
    if step:
        often &= counts >= ATOM_RATIO * _neighbour_counts(values, counts, step)
    chosen = np.flatnonzero(often)[np.argsort(-counts[often])][:MAX_ATOMS]
    others = np.delete(values, chosen).repeat(np.delete(counts, chosen))
    cells = np.full(len(values), step > 0)
    cells[chosen] = True
    piled = cells & (counts >= max(PILED_SHARE * len(v), FEWEST_PILED))
    ends = values[0] if piled[0] else -np.inf, values[-1] if piled[-1] else np.inf
    if _are_levels(values, counts, step):
        return _Found(levels=values, ends=ends)
    if not len(others):
        return _Found(step, float(values[0]), ends=ends)
    room = np.subtract(*np.quantile(others, [0.95, 0.05])) or np.ptp(values)
    widths = np.clip(counts[chosen] / len(others), *WIDTHS) * room
    # Among values of very different size a wide cell would leave nothing of the differences between small ones.
    closest, near, far = np.quantile(np.abs(others - values[chosen][:, None]), [0.05, 0.1, 0.95], axis=1)
    widths = np.where(far > DISTANCE_RATIO * closest, np.minimum(widths, MAX_DISTANCES * near), widths) - step
    atoms = tuple((float(values[i]), float(c)) for i, c in zip(chosen, widths, strict=True) if c > 0)
    return _Found(step, float(values[0]), atoms, ends=ends)


def _are_levels(values: np.ndarray, counts: np.ndarray, step: float) -> bool:
    """Return whether there are a few values, none of them by chance, and on no lattice or far apart on one."""
    are_few = 2 < len(values) <= MOST_LEVELS and counts.min() >= FEWEST_PILED
    return bool(are_few and (not step or np.mean(np.diff(values) < 1.5 * step) < MOST_NEIGHBOURS))


def _step(values: np.ndarray, rows: int) -> float:
    """Return the step of the lattice that the values are on; 0 if they are on none."""
    whole = bool(np.all(values == np.round(values)))
    if not whole and len(values) > DISTINCT_SHARE * rows:
        return 0.0
    above = values - values[0]
    step = float(np.min(np.diff(values)))
    if above[-1] < MAX_STEPS * step:
        steps = np.round(above / step)
        step = float(above @ steps / (steps @ steps))  # differences of neighbours alone are rounded too much
        if np.all(np.abs(above - step * steps) < LATTICE_TOLERANCE * step):
            return step
    return 1.0 if whole else 0.0


def _neighbour_counts(values: np.ndarray, counts: np.ndarray, step: float) -> np.ndarray:
    """Return how often the more frequent neighbour of each value on a lattice occurs."""
    steps = np.round((values - values[0]) / step)
    after = np.where(np.diff(steps) == 1, counts[1:], 0)
    before = np.where(np.diff(steps) == 1, counts[:-1], 0)
    return np.maximum(np.append(after, 0), np.insert(before, 0, 0))
