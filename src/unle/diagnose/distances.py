r"""How far two sets of points are from each other, by measures that need no classifier.

    D           = 2 E|a - b| - E|a - a'| - E|b - b'| >= 0,   the energy distance, 0 only for equal distributions,
    S(B, y)     = E|b - y| - 1/2 E|b - b'|,                  the energy score of an observation y under forecasts b,
    MMD^2       = E k(a, a') + E k(b, b') - 2 E k(a, b),     k(a, b) = exp(-|a - b|^2 / (2 l^2)),
    mean error  = mean_j |mean a_j - mean b_j| / sd b_j.

C2ST saturates at 1 and does not see small shifts of weight between modes; these do.  `discrepancy` gives three of them
with standard errors, D in standard deviations of the reference.  MMD and D are averages of unbiased estimates over
disjoint blocks of draws, whose spread gives the standard error; they may come out slightly negative.  The length l of
the kernel is the median distance between reference draws.

References: Szekely and Rizzo, "Energy statistics", 2013; Gneiting and Raftery, 2007; Gretton et al., 2012 (MMD).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist, pdist

from unle.diagnose.p_values import tail_probability
from unle.errors import InputError

BLOCKS = 10
DRAWS_FOR_MEDIAN = 1000  # draws behind the kernel's length
DRAWS_FOR_SCORE = 1000  # draws behind an energy score; published scores use it


class EnergyTest(NamedTuple):
    """A two-sample test: the distance D, and the probability of one as large if the sets had one distribution."""

    distance: float
    p_value: float


def energy_test(
    a: Float[np.ndarray, "n d"], b: Float[np.ndarray, "m d"], *, permutations: int = 300, seed: int = 0
) -> EnergyTest:
    """Test whether two sets of points have one distribution, by permuting their labels.

    Up to a thousand points or so in a set, since all distances are held in memory.
    """
    pooled = np.concatenate([a, b])
    distances = cdist(pooled, pooled)
    n, m = len(a), len(b)
    signs = np.concatenate([np.full(n, 1 / n), np.full(m, -1 / m)])
    rng = np.random.default_rng(seed)
    shuffled = np.stack([signs, *(rng.permutation(signs) for _ in range(permutations))])
    values = -np.einsum("ki,ki->k", shuffled @ distances, shuffled)  # the quadratic form of the signs is -D
    return EnergyTest(float(values[0]), tail_probability(values[1:], values[0]))


def energy_scores(
    forecasts: Float[np.ndarray, "n d"], points: Float[np.ndarray, "m d"]
) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " n"]]:
    """Return the scores of the points, and of every forecast as if it were the point and the others the forecasts."""
    n = len(forecasts)
    among = cdist(forecasts, forecasts)
    spread = among.sum() / (n * (n - 1))
    to_points = cdist(points, forecasts).mean(axis=1) - spread / 2
    left_out = (among.sum() - 2 * among.sum(axis=1)) / ((n - 1) * (n - 2))
    return to_points, among.sum(axis=1) / (n - 1) - left_out / 2


class Estimate(NamedTuple):
    """A value and its standard error."""

    value: float
    error: float


class Discrepancy(NamedTuple):
    """Three distances between two sets of draws."""

    mmd: Estimate
    energy_distance: Estimate
    mean_error: Estimate


def discrepancy(reference: ArrayLike, draws: ArrayLike, *, blocks: int = BLOCKS) -> Discrepancy:
    """Measure the distance of draws from reference draws.

    Args:
        reference: draws of the truth, (n, d).
        draws: of the approximation, (n, d), in random order: neighbours must not be more alike than others.
        blocks: disjoint parts whose estimates are averaged; at least two.

    Example:
        >>> import numpy as np
        >>> one, other = np.random.default_rng(0).normal(size=(2, 2000, 2))
        >>> found = discrepancy(one, other + 0.5)
        >>> bool(0.4 < found.mean_error.value < 0.6), bool(found.mmd.value > 4 * found.mmd.error)
        (True, True)
    """
    a, b = (np.asarray(values, dtype=np.float64) for values in (draws, reference))
    if a.ndim != 2 or a.shape != b.shape or blocks < 2 or len(a) < 4 * blocks:
        raise InputError(
            f"expected two sets of equal shape (n, dim) with n at least {4 * max(blocks, 2)}; got {b.shape}, {a.shape}."
        )
    sd = b.std(axis=0, ddof=1)
    if not (sd > 0).all():
        raise InputError(
            f"expected a reference that varies; got constant columns {np.flatnonzero(~(sd > 0)).tolist()}."
        )
    some = b[np.linspace(0, len(b) - 1, min(len(b), DRAWS_FOR_MEDIAN)).astype(int)]
    length = np.median(pdist(some))
    parts = list(zip(np.array_split(a, blocks), np.array_split(b, blocks), strict=True))
    kernels, distances = [], []
    for first, second in parts:
        kernels.append(-_contrast(first, second, lambda u, v: np.exp(-cdist(u, v, "sqeuclidean") / (2 * length**2))))
        distances.append(_contrast(first / sd, second / sd, cdist))
    return Discrepancy(_mean(kernels), _mean(distances), _mean_error(a / sd, b / sd, blocks))


def energy_score(draws: ArrayLike, truth: ArrayLike, scale: ArrayLike) -> float:
    """Return the energy score of the true parameters (d,) under draws (n, d), in units (d,); lower is better."""
    values, scale = np.asarray(draws, dtype=np.float64), np.asarray(scale, dtype=np.float64)
    some = values[np.linspace(0, len(values) - 1, min(len(values), DRAWS_FOR_SCORE)).astype(int)]
    scores, _ = energy_scores(some / scale, np.atleast_2d(np.asarray(truth, dtype=np.float64) / scale))
    return float(scores[0])


def _contrast(first: np.ndarray, second: np.ndarray, measure) -> float:
    """Return 2 mean m(a, b) - mean m(a, a') - mean m(b, b'), without pairs of a draw and itself."""
    n, m = len(first), len(second)
    among_a, among_b = measure(first, first), measure(second, second)
    inside = (among_a.sum() - np.trace(among_a)) / (n * (n - 1)) + (among_b.sum() - np.trace(among_b)) / (m * (m - 1))
    return float(2 * measure(first, second).mean() - inside)


def _mean(values: list[float]) -> Estimate:
    return Estimate(float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values))))


def _mean_error(a: Float[np.ndarray, "n d"], b: Float[np.ndarray, "n d"], blocks: int) -> Estimate:
    """Estimate the mean error with all draws, and its standard error by leaving out blocks."""
    difference = a - b
    whole, n = difference.sum(axis=0), len(a)
    parts = np.array_split(difference, blocks)
    left_out = [np.abs((whole - part.sum(axis=0)) / (n - len(part))).mean() for part in parts]
    error = np.sqrt((blocks - 1) * np.var(left_out))
    return Estimate(float(np.abs(whole / n).mean()), float(error))
