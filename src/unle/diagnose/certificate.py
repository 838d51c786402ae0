r"""Can the normaliser of a tilted model be computed from draws of its base?

Two estimates of log Z_pi must agree: one from draws of the base, which is too low if the energy has mass where no draw
went, and one from draws half of which come from the base widened by one half, with weights that make up for it.  The
fit writes their difference with its standard error; the shape of the tail of the weights (Pareto k: below 0.7
their mean converges fast enough to be used, from 1 on it does not exist); and the share of held-out data that outweigh
every draw, which would be about one in the number of draws if these covered the data.

    good       |gap| < 0.15 nats + 2 errors, k < 0.7, and fewer than 5 % of the data outweigh
    doubtful   |gap| < 0.5 nats + 2 errors, k < 1
    bad        beyond

0.15 and 0.5 nats are those of `z_uniformity`.  It judges a constant, on average over theta: a Z(theta) that varies is
the business of `normaliser`.

Reference: Vehtari, Simpson, Gelman, Yao and Gabry, "Pareto smoothed importance sampling", 2024.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from unle.diagnose.record import Check, NotApplicable, Verdict, worst
from unle.diagnose.z_uniformity import BAD, GOOD

TITLE = "Normaliser from two sides"
QUESTION = "Do the draws of the base reach wherever the model has mass?"
HEAVY, NO_MEAN = 0.7, 1.0  # Pareto k
OUTWEIGH = 0.05  # share of held-out data heavier than every draw


def certificate(records: Sequence[Mapping[str, Any]]) -> Check:
    """Check the normaliser that a fit of a tilted model estimated.

    Args:
        records: the metrics of the fit; the last one of stage "certificate" counts.

    Raises:
        NotApplicable: the fit wrote no such record.
    """
    told = [record for record in records if record.get("stage") == "certificate"]
    if not told:
        raise NotApplicable("the fit did not estimate its normaliser from two sides.")
    gap, error, k, outweigh = (float(told[-1][name]) for name in ("log_z_gap", "log_z_error", "pareto_k", "outweigh"))
    noise = 2 * error
    verdicts: dict[str, Verdict] = {
        "gap": _below(abs(gap), GOOD + noise, BAD + noise),
        "weights": _below(k, HEAVY, NO_MEAN),
        "reach": _below(outweigh, OUTWEIGH, math.inf),
    }
    numbers = {"log_Z_gap": gap, "standard_error": error, "pareto_k": k, "outweigh": outweigh}
    return Check("certificate", TITLE, QUESTION, worst(list(verdicts.values())), numbers, _advice(verdicts))


def _below(value: float, good: float, bad: float) -> Verdict:
    if not value < bad:  # NaN is bad too
        return "bad"
    return "good" if value < good else "doubtful"


def _advice(verdicts: dict[str, Verdict]) -> str:
    if verdicts["gap"] != "good":
        return "The model has mass that the draws of its base do not reach, or too little where they go: simulate more."
    if verdicts["weights"] != "good":
        return "A few draws of the base carry the estimate of the normaliser: it may be far off; simulate more."
    if verdicts["reach"] != "good":
        return "Many data lie where no draw of the base does: the normaliser is guesswork there; simulate more."
    return "Both estimates of the normaliser agree."
