r"""Which data are close enough to the observation to learn its likelihood from.

For every set B of data that holds x_o,

    p(x_o | theta) = p(x_o | theta, x in B) P(x in B | theta),

so a likelihood may be fitted to the simulations in B alone, if the other factor is learned from all of them.  A
simulation that came out far from x_o then counts as a failed one does: it speaks against theta, and does not bend a
density that is needed at x_o only.

The identity is exact, and holds for the fit as far as a density of all data describes those in B: B should not cut
through the data of parameters that matter.

`outlying` asks the opposite question: could the observation be one of the data?  If not, rounds have lost it.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

REACH = 3.0  # half-width of B, in distances to x_o that two thirds of the data do not exceed
TWO_THIRDS = 0.683
OUTSIDE = 4.0  # of `outlying`, above which an observation is none of the data; 5.8 standard deviations of one normal
NEIGHBOURS = 5  # the distance to the fifth nearest is steadier than that to the nearest
MOST_COMPARED = 2000  # rows: distances are between all pairs
NORMAL_RANGE = 3.29  # between the quantiles 0.05 and 0.95 of a standard normal
ROUNDING = 1e-6  # of a value: a smaller difference is due to single precision


class Neighbourhood(NamedTuple):
    """A box B of standardised data around an observation.

    It ends at `reach` beyond the smallest and largest values of the observed rows; infinite in coordinates in which all
    data are equal.
    """

    low: Float[np.ndarray, "data"]
    high: Float[np.ndarray, "data"]
    reach: Float[np.ndarray, "data"]

    @classmethod
    def of(cls, w_o: Float[np.ndarray, "rows data"], w: Float[np.ndarray, "n data"]) -> "Neighbourhood":
        """Return the box for observed rows w_o and data w of the latest proposals; it holds at least half of these."""
        low, high = w_o.min(axis=0), w_o.max(axis=0)
        unit = np.array([_two_thirds(column) for column in np.abs(w - np.median(w_o, axis=0)).T])
        farthest = np.max(np.abs(w - np.clip(w, low, high)) / unit, axis=1)
        return cls(low, high, max(REACH, float(np.median(farthest))) * unit)

    def contains(self, w: Float[np.ndarray, "n data"]) -> Bool[np.ndarray, " n"]:
        """Return which data lie inside."""
        return np.asarray(np.all(np.abs(w - np.clip(w, self.low, self.high)) <= self.reach, axis=1))


def outlying(
    w_o: Float[np.ndarray, "rows data"], w: Float[np.ndarray, "n data"], step: Float[np.ndarray, " data"] | None = None
) -> float:
    r"""Return how far an observation lies outside of data, compared with how far these lie from one another.

    For x_o and for every row of the data, two distances s are taken: the largest over coordinates from the median, in
    standard deviations, and the distance to the fifth nearest row, which notices data off a curve that all others lie
    on.  With the quantiles q of s over the data,

        (s_o - q_50) / max(q_95 - q_50, (q_100 - q_50) / 4)

    is about 1 at the edge of the data, and above 4, `OUTSIDE`, only if x_o is farther out than all of them and four
    times as far as that edge.  The larger of the two numbers is returned.  As x_o and the data are treated alike, this
    holds in any number of dimensions.

    Args:
        w_o: the observed rows; the median of their distances is taken.
        w: the data.
        step: from one possible value to the next, of coordinates with few of them such as counts; 0 for others.  A
            smaller spread than that is no reason to call the next value far.

    Example:
        >>> import numpy as np
        >>> from unle.methods.neighbourhood import OUTSIDE, outlying
        >>> data = np.random.default_rng(0).normal(size=(200, 3))
        >>> within, outside = (outlying(np.array([[first, 0.0, -2.0]]), data) for first in (1.0, 9.0))
        >>> within < 1 < OUTSIDE < outside
        True
    """
    w = w[:MOST_COMPARED]
    least = np.zeros(w.shape[1]) if step is None else step
    spread, centre = _spread(w, least), np.median(w, axis=0)
    z, z_o, cells = (w - centre) / spread, (w_o - centre) / spread, least / spread
    by_coordinate = _beyond(np.median(np.abs(z_o).max(axis=1)), np.abs(z).max(axis=1), least=0.5)
    k = min(NEIGHBOURS, len(w) - 1)
    if k < 1:
        return by_coordinate
    between = _distances(z, z)
    np.fill_diagonal(between, np.inf)
    to_data = float(np.median(np.partition(_distances(z_o, z), k - 1, axis=1)[:, k - 1]))
    half_a_step = 0.5 * float(np.sqrt(np.mean(cells**2)))
    by_neighbours = _beyond(to_data, np.partition(between, k - 1, axis=1)[:, k - 1], least=half_a_step)
    return max(by_coordinate, by_neighbours)


def nearest(
    w_o: Float[np.ndarray, "rows data"], w: Float[np.ndarray, "n data"], step: Float[np.ndarray, " data"], n: int
) -> Int[np.ndarray, " near"]:
    """Return which data are nearest to the mean of the observed rows.

    Which coordinates matter depends on how far one looks: the half that is nearer is kept, distances are taken anew in
    units of what is left, and so on until n are left.
    """
    left, away = np.arange(len(w)), w - w_o.mean(axis=0)
    while len(left) > n:
        distance = np.sum((away[left] / _spread(w[left], step)) ** 2, axis=1)
        left = left[np.argsort(distance, kind="stable")[: max(n, len(left) // 2)]]
    return left


def _spread(w: Float[np.ndarray, "n data"], least: Float[np.ndarray, " data"]) -> Float[np.ndarray, " data"]:
    """Return a standard deviation that outliers do not change much, and not less than what is given."""
    low, high = np.quantile(w, [0.05, 0.95], axis=0)
    spread = np.where(high > low, (high - low) / NORMAL_RANGE, np.std(w, axis=0))
    return np.maximum(np.maximum(spread, least), ROUNDING * np.max(np.abs(w), axis=0) + np.finfo(np.float32).tiny)


def _beyond(observed: float | np.floating, others: Float[np.ndarray, " n"], *, least: float) -> float:
    """Return the distance of the observation above the median of the others', in units of their own."""
    middle, edge, farthest = np.quantile(others, [0.5, 0.95, 1.0])
    unit = max(edge - middle, (farthest - middle) / OUTSIDE, least, ROUNDING)
    return float((observed - middle) / unit)


def _distances(a: Float[np.ndarray, "n data"], b: Float[np.ndarray, "m data"]) -> Float[np.ndarray, "n m"]:
    """Return the root mean square distance over coordinates, between all pairs of rows."""
    squared = np.sum(a**2, axis=1)[:, None] + np.sum(b**2, axis=1) - 2 * a @ b.T
    return np.sqrt(np.maximum(squared, 0.0) / a.shape[1])


def _two_thirds(distances: Float[np.ndarray, " n"]) -> float:
    """Return the distance that two thirds do not exceed; of those that are not zero, where most are."""
    if not distances.any():
        return np.inf
    found = float(np.quantile(distances, TWO_THIRDS))
    return found if found > 0 else float(np.quantile(distances[distances > 0], TWO_THIRDS))
