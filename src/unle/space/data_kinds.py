r"""Kinds of data that are found by looking at them: single values with positive probability, repeated measurements.

**Cells**: counts, yes or no, rounded readings, exact zeros.  A density could grow without end at such a value.  So the
value is spread over a cell, and its probability is the integral of the density over that cell:

- A lattice (whole numbers, multiples of a step h): x becomes x + h (u - 1/2), u uniform on (0, 1).
- An atom a of other data, such as a zero for everything below a threshold: a cell of width c is pushed in at a,

      x < a: x,    x = a: a + c u,    x > a: x + c.

Both may be true of one coordinate: counts with more zeros than a count has.

**Repeated measurements**: blocks of coordinates that are alike whatever theta is.  A simulator that measures the same
thing k times returns x = (y_1, ..., y_k).  If the y_b are independent and alike given theta, p(x | theta) =
prod_b p(y_b | theta): one likelihood to learn from k times the data.  Blocks that are alike can be told from blocks
that are not:

    E[(g(y_b) - mean_c g(y_c)) phi(theta)] = 0   for all functions g and phi and every block b.

Here g and phi are monomials up to the second degree, of ranks turned into normal scores, which no outlier can upset.
This is a first look, at some rows.  Whether blocks are alike in all rows, and *independent* given theta, is asked of
the residuals of a fit: see `unle.train.residuals`.
"""

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.special import ndtri

from unle.space.host_device import on_device

MAX_ATOMS = 3  # of one coordinate
MIN_ROWS = 50  # with fewer, ties are chance
ATOM_SHARE = 0.05  # of the rows that must have a value for it to be an atom
ATOM_RATIO = 3.0  # an atom on a lattice is so many times as frequent as the values beside it
DISTINCT_SHARE = 0.5  # of the rows; data with fewer distinct values are on a lattice if they are multiples of a step
LATTICE_TOLERANCE = 0.01  # distance of a value from a multiple of the step, in steps; it is rounded
MAX_STEPS = 1e4  # from the smallest to the largest value; single precision tells no more apart
# Where the distances of other values from an atom differ by this factor, its cell is at most so many times the distance
# below which a tenth of them lie.
DISTANCE_RATIO, MAX_DISTANCES = 100.0, 2.0
WIDTHS = 0.1, 1.0  # the narrowest and the widest cell of an atom, in units of the other values' spread
MIN_REPEATED_ROWS = 200  # with fewer, blocks that differ may pass
ROWS = 2000  # that are looked at,
MAX_VALUES = 1_000_000  # or fewer, so that there are not more numbers in them
MAX_COORDINATES = 2000  # of x; nothing is looked for in longer ones
LEVEL = 1e-3  # probability that repeated measurements are not recognised, with not too few rows
MAX_PRODUCTS = 8  # coordinates of which all products are taken; of more, squares alone
MAX_CUTS = 3  # that are returned

Blocks = tuple[tuple[int, ...], ...]


class Cells(eqx.Module):
    """What is spread, for every coordinate of x."""

    step: Float[Array, " dim_x"]  # h of a lattice; 0 for none
    origin: Float[Array, " dim_x"]  # a value on the lattice
    atoms: Float[Array, "atom dim_x"]  # values a, in order; NaN for none
    widths: Float[Array, "atom dim_x"]  # c of each

    @classmethod
    def none(cls, dim_x: int) -> "Cells":
        """Return cells that spread nothing."""
        zeros, no_atoms = np.zeros(dim_x), np.zeros((0, dim_x))
        return cls(*map(on_device, (zeros, zeros, no_atoms, no_atoms)))

    @property
    def which(self) -> list[int]:
        """The coordinates that have cells."""
        return np.flatnonzero((np.asarray(self.step) > 0) | np.isfinite(np.asarray(self.atoms)).any(axis=0)).tolist()

    def describe(self, i: int) -> str:
        """Say in a few words what is spread in coordinate i; nothing if nothing is."""
        step, atoms = float(self.step[i]), np.asarray(self.atoms)[:, i]
        words = [f"multiples of {step:.4g}"] if step > 0 else []
        words += [f"exactly {a:.4g} with positive probability" for a in atoms[np.isfinite(atoms)]]
        return "".join(f"{word}, " for word in words)

    def spread(self, x: Any, u: Any = 0.5) -> Any:
        """Return x with every value at the fraction u of its cell: rows or one row, NumPy or JAX, as x is."""
        library = np if isinstance(x, np.ndarray) else jnp
        step, atoms, widths = (library.asarray(part) for part in (self.step, self.atoms, self.widths))
        moved = x + step * (u - 0.5)
        for a, width in zip(atoms, widths, strict=True):
            moved = moved + width * library.where(x == a, u, x > a)
        return moved

    def gather(self, y: Float[Array, " dim_x"]) -> Float[Array, " dim_x"]:
        """Return the x that was spread to y."""
        for a, width in zip(self.atoms, self.widths, strict=True):
            start = a - self.step / 2
            y = jnp.where(y > start + self.step + width, y - width, jnp.where(y >= start, a, y))
        h = jnp.where(self.step > 0, self.step, 1.0)
        return jnp.where(self.step > 0, self.origin + h * jnp.round((y - self.origin) / h), y)


def find_cells(x: Float[np.ndarray, "n dim_x"], groups: Int[np.ndarray, " dim_x"] | None = None) -> Cells:
    """Look for lattices and atoms in data.

    Args:
        x: the data.
        groups: a number for every coordinate; those with the same number are looked at together.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> x = np.column_stack([rng.poisson(3.0, 200), rng.normal(size=200), np.maximum(rng.normal(size=200), 0)])
        >>> cells = find_cells(x.astype(float))
        >>> cells.step.tolist(), cells.atoms.tolist()
        ([1.0, 0.0, 0.0], [[nan, nan, 0.0]])
    """
    x = x.astype(np.float32).astype(float)  # as an observation will be rounded
    groups = np.arange(x.shape[1]) if groups is None else np.unique(groups, return_inverse=True)[1]
    by_group = [_find_in_values(np.ravel(x[:, groups == group])) for group in range(groups.max() + 1)]
    most = max(len(atoms) for _, _, atoms in by_group)
    step, origin = np.zeros(x.shape[1]), np.zeros(x.shape[1])
    atoms, widths = np.full((most, x.shape[1]), np.nan), np.zeros((most, x.shape[1]))
    for group, (h, first, own) in enumerate(by_group):
        step[groups == group], origin[groups == group] = h, first
        for i, (value, width) in enumerate(sorted(own)):
            atoms[i, groups == group], widths[i, groups == group] = value, width
    return Cells(*map(on_device, (step, origin, atoms, widths)))


def _find_in_values(v: np.ndarray) -> tuple[float, float, list[tuple[float, float]]]:
    """Return step and origin of a lattice, and atoms with the widths of their cells."""
    values, counts = np.unique(v, return_counts=True)
    if len(v) < MIN_ROWS or not 1 < len(values) < len(v):
        return 0.0, 0.0, []
    step = _step(values, len(v))
    often = counts >= ATOM_SHARE * len(v)
    if step:
        often &= counts >= ATOM_RATIO * _neighbour_counts(values, counts, step)
    chosen = np.flatnonzero(often)[np.argsort(-counts[often])][:MAX_ATOMS]
    others = np.delete(values, chosen).repeat(np.delete(counts, chosen))
    if not len(others):
        return step, float(values[0]), []
    room = np.subtract(*np.quantile(others, [0.95, 0.05])) or np.ptp(values)
    widths = np.clip(counts[chosen] / len(others), *WIDTHS) * room
    # Among values of very different size a wide cell would leave nothing of the differences between small ones.
    closest, near, far = np.quantile(np.abs(others - values[chosen][:, None]), [0.05, 0.1, 0.95], axis=1)
    widths = np.where(far > DISTANCE_RATIO * closest, np.minimum(widths, MAX_DISTANCES * near), widths) - step
    return step, float(values[0]), [(float(values[i]), float(c)) for i, c in zip(chosen, widths, strict=True) if c > 0]


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


def repeated_blocks(theta: Float[np.ndarray, "n dim"], x: Float[np.ndarray, "n dim_x"]) -> tuple[Blocks, ...]:
    """Return ways to cut x into measurements that are alike, most measurements first; none if there is no such way.

    Each way lists the coordinates of every measurement.  They may stand together, (a1, b1, a2, b2, ...), or apart,
    (a1, a2, ..., b1, b2, ...).

    Args:
        theta: parameters.
        x: data.

    Example:
        >>> import numpy as np
        >>> from unle.space.data_kinds import repeated_blocks
        >>> rng = np.random.default_rng(0)
        >>> theta = rng.normal(size=(1000, 2))
        >>> repeated_blocks(theta, np.tile(theta, 2) + rng.normal(size=(1000, 4)))
        (((0, 1), (2, 3)),)
        >>> repeated_blocks(theta, theta + rng.normal(size=(1000, 2)))
        ()
    """
    n, dim = x.shape
    if n < MIN_REPEATED_ROWS or not 2 <= dim <= MAX_COORDINATES:
        return ()
    some = np.random.default_rng(0).permutation(n)[: min(ROWS, MAX_VALUES // dim)]
    phi = _monomials(_normal_scores(np.asarray(theta, float)[some]), constant=True)
    values = np.asarray(x, float)[some]
    accepted: list[Blocks] = []
    for blocks in _cuts(dim):
        if _same_law(phi, values[:, np.array(blocks)]):
            accepted.append(blocks)
        if len(accepted) == MAX_CUTS:
            break
    return tuple(accepted)


def _cuts(dim: int) -> Iterator[Blocks]:
    """Yield the ways to cut so many coordinates into blocks of the same length, most blocks first."""
    for k in (k for k in range(dim, 1, -1) if dim % k == 0):
        together = np.arange(dim).reshape(k, -1)
        apart = np.arange(dim).reshape(-1, k).T
        for cut in (together, apart) if k < dim else (together,):
            yield tuple(tuple(int(i) for i in block) for block in cut)


def _same_law(phi: Float[np.ndarray, "n feature"], y: Float[np.ndarray, "n block dim"]) -> bool:
    n, k, d = y.shape
    scores = _normal_scores(y.reshape(n * k, d))  # ranks among all blocks
    g = _monomials(scores, constant=False).reshape(n, k, -1)
    off = (g - g.mean(axis=1, keepdims=True)).reshape(n, -1)
    sums, squares = off.T @ phi, np.square(off).T @ np.square(phi)
    t = np.abs(sums) / np.sqrt(np.where(squares > 0, squares, np.inf))  # self-normalised: its tails are no heavier
    return bool(t.max() < -ndtri(LEVEL / (2 * t.size)))


def _normal_scores(values: np.ndarray) -> np.ndarray:
    from scipy.stats import rankdata  # takes longer to import than everything else that a saved posterior needs

    return ndtri((rankdata(values, axis=0) - 0.5) / len(values))


def _monomials(z: np.ndarray, *, constant: bool) -> np.ndarray:
    """Return columns z_i, z_i z_j and, if wanted, ones."""
    i, j = np.triu_indices(z.shape[1]) if z.shape[1] <= MAX_PRODUCTS else np.diag_indices(z.shape[1])
    return np.concatenate([np.ones((len(z), int(constant))), z, z[:, i] * z[:, j]], axis=1)
