"""Did a sequential run stay around its observation?  One check of its records, and one table of its simulations.

Rounds simulate where the last fit put the posterior.  A fit that is wrong there leads the next round astray, and what
is not simulated is never corrected.  The run looks after every round whether x_o is still among its simulations, writes
a record where it is not, and tries to find its way back.  `lost_rounds` reads those records.  A run that lost part of
the posterior, a mode say, while x_o stayed among its simulations, is not seen.

`rounds` says how the rounds went: were simulations valid, did they come closer to x_o, did the proposal shrink?
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from unle.diagnose.record import Check, CheckKind, NotApplicable, Verdict

ROUNDS = CheckKind("rounds", "Rounds that lost the observation", "Did every round stay around the observation?")


def lost_rounds(records: Sequence[Mapping[str, Any]]) -> Check:
    """Check the rounds of a sequential run.

    Args:
        records: the metrics of the run; those of stage "lost" count.

    Raises:
        NotApplicable: the run had no rounds.
    """
    lost = [record for record in records if record.get("stage") == "lost"]
    rounds = [record for record in records if record.get("stage") == "round"]
    if not lost and not rounds:
        raise NotApplicable("the run has no rounds.")
    for_good = [record for record in lost if not record.get("recovered", False)]
    verdict: Verdict = "bad" if for_good else "good"
    if for_good:
        reason = str(for_good[-1].get("reason", "")).strip().rstrip(".")
        advice = f"The rounds lost x_o and did not find it again{': ' if reason else ''}{reason}; use --method aunle."
    elif lost:
        advice = "The rounds lost x_o at one time and found it again."
    else:
        advice = "Every round stayed around x_o."
    return ROUNDS.result(verdict, {"lost": len(lost), "for_good": len(for_good)}, advice)


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
