"""Did a sequential run lose its observation on the way?

Rounds simulate where the last fit put the posterior.  A fit that is wrong there leads the next round astray, and what
is not simulated is never corrected.  The run looks after every round whether x_o is still among its simulations, writes
a record where it is not, and tries to find its way back.  This check reads those records.  A run that lost part of the
posterior, a mode say, while x_o stayed among its simulations, is not seen.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from unle.diagnose.record import Check, NotApplicable, Verdict

TITLE = "Rounds that lost the observation"
QUESTION = "Did every round stay around the observation?"


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
    return Check("rounds", TITLE, QUESTION, verdict, {"lost": len(lost), "for_good": len(for_good)}, advice)
