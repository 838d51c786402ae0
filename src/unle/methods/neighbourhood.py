r"""Which data are close enough to the observation to learn its likelihood from.

For every set B of data that holds x_o,

    p(x_o | theta) = p(x_o | theta, x in B) P(x in B | theta),

so a likelihood may be fitted to the simulations in B alone, if the other factor is learned from all of them.  A
simulation that came out far from x_o then is what a failed one is: proof that theta is not the one, and no reason to
bend a density that is needed at x_o only.
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
        reach: how far beyond them the box ends, infinite in coordinates that hardly vary.
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
        distance = np.abs(w - np.clip(w, low, high))
        unit = np.quantile(distance, TWO_THIRDS, axis=0)
        unit = np.where(unit > 0, unit, np.inf)
        farthest = np.max(distance / unit, axis=1)
        return cls(low, high, max(REACH, float(np.median(farthest))) * unit)

    def contains(self, w: Float[np.ndarray, "n data"]) -> Bool[np.ndarray, " n"]:
        """Return which data lie inside."""
        return np.asarray(np.all(np.abs(w - np.clip(w, self.low, self.high)) <= self.reach, axis=1))
