r"""Energy distances: how far apart two clouds of points are, and how far one point is from a cloud.

    D(A, B) = 2 E|a - b| - E|a - a'| - E|b - b'| >= 0,   0 only if the distributions are equal;
    S(B, y) = E|b - y| - 1/2 E|b - b'|,                  the energy score of an observation y under forecasts b.

Both need distances only, hence no density, no classifier and no tuning.

References: Szekely and Rizzo, "Energy statistics", 2013; Gneiting and Raftery, 2007.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.spatial.distance import cdist

from unle.diagnose.tails import tail_probability


class EnergyTest(NamedTuple):
    """A two-sample test: the distance D, and the probability of one as large if the clouds were one."""

    distance: float
    p_value: float


def energy_test(
    a: Float[np.ndarray, "n d"], b: Float[np.ndarray, "m d"], *, permutations: int = 300, seed: int = 0
) -> EnergyTest:
    """Test whether two clouds have one distribution, by permuting who belongs where.

    Args:
        a: one cloud; up to a thousand points or so, since all distances are held in memory.
        b: the other.
        permutations: relabellings behind the p-value.
        seed: of the relabellings.
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
