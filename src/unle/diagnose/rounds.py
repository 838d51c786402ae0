"""How a run of several rounds went: were simulations valid, did they come closer to x_o, did the proposal shrink?"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True)
class Rounds:
    """One number per round.

    Attributes:
        number: of the round.
        simulations: made in it.
        valid: share of them.
        distance: median distance of x from x_o, in standard deviations of the first round's x.
        width: geometric mean of the parameters' spread, relative to the first round.
    """

    number: Float[np.ndarray, " round"]
    simulations: Float[np.ndarray, " round"]
    valid: Float[np.ndarray, " round"]
    distance: Float[np.ndarray, " round"]
    width: Float[np.ndarray, " round"]


def rounds(rows: Any, x_o: Float[np.ndarray, "rows dim_x"] | None) -> Rounds:
    """Summarise the simulations of every round.

    Args:
        rows: of `SimulationStore.read`.
        x_o: the observation, or None; distances are NaN then.
    """
    numbers = np.unique(rows.round)
    table = []
    first = rows.round == numbers[0]
    spread_x = np.nanstd(rows.x[first & rows.valid], axis=0) + 1e-12
    spread_theta = rows.theta[first].std(axis=0) + 1e-300
    centre = None if x_o is None else np.mean(x_o, axis=0)
    for number in numbers:
        mine = rows.round == number
        x = rows.x[mine & rows.valid]
        away = (
            np.nan if centre is None or not len(x) else np.median(np.sqrt(np.mean(((x - centre) / spread_x) ** 2, 1)))
        )
        width = np.exp(np.mean(np.log(rows.theta[mine].std(axis=0) / spread_theta + 1e-300)))
        table.append((number, mine.sum(), rows.valid[mine].mean(), away, width))
    return Rounds(*np.array(table, float).T)
