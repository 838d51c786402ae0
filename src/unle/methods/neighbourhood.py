r"""Which data are close enough to the observation to learn its likelihood from.

For every set B of data that holds x_o,

    p(x_o | theta) = p(x_o | theta, x in B) P(x in B | theta),

so a likelihood may be fitted to the simulations in B alone, if the other factor is learned from all of them.  A
simulation that came out far from x_o then counts as a failed one does: it speaks against theta, and does not bend a
density that is needed at x_o only.

The identity is exact, and holds for the fit as far as a density of all data describes those in B: B should not cut
through the data of parameters that matter.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

REACH = 3.0  # half-width of B, in distances to x_o that two thirds of the data do not exceed
TWO_THIRDS = 0.683


class Neighbourhood(NamedTuple):
    """A box B of standardised data around an observation.

    Attributes:
        low: smallest values of the observed rows.
        high: largest values.
        reach: how far beyond them the box ends; infinite in coordinates in which all data are equal.
    """

    low: Float[np.ndarray, "data"]
    high: Float[np.ndarray, "data"]
    reach: Float[np.ndarray, "data"]

    @classmethod
    def of(cls, w_o: Float[np.ndarray, "rows data"], w: Float[np.ndarray, "n data"]) -> "Neighbourhood":
        """Return the box that fits data of the latest proposals; it holds at least half of them.

        Args:
            w_o: the observed rows.
            w: data simulated at the latest proposals.
        """
        low, high = w_o.min(axis=0), w_o.max(axis=0)
        unit = np.array([_two_thirds(column) for column in np.abs(w - np.median(w_o, axis=0)).T])
        farthest = np.max(np.abs(w - np.clip(w, low, high)) / unit, axis=1)
        return cls(low, high, max(REACH, float(np.median(farthest))) * unit)

    def contains(self, w: Float[np.ndarray, "n data"]) -> Bool[np.ndarray, " n"]:
        """Return which data lie inside."""
        return np.asarray(np.all(np.abs(w - np.clip(w, self.low, self.high)) <= self.reach, axis=1))


def _two_thirds(distances: Float[np.ndarray, " n"]) -> float:
    """Return the distance that two thirds do not exceed; of those that are not zero, where most are."""
    if not distances.any():
        return np.inf
    found = float(np.quantile(distances, TWO_THIRDS))
    return found if found > 0 else float(np.quantile(distances[distances > 0], TWO_THIRDS))
