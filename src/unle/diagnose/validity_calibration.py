r"""Is P(valid | theta) a probability?

Where simulations fail, the likelihood of an observation has the factor P(valid | theta), learned from which simulations
failed, or came out far from the observation. On rows that the fit held back, sorted into ten groups by their
prediction, the share of valid rows near the observation is compared with the prediction. The mean absolute difference
has a known expectation and spread for perfect probabilities, from the size of the groups alone; what is beyond is
miscalibration.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from scipy.stats import norm

from unle.diagnose.record import Check, NotApplicable, verdict_of

TITLE = "Probability of a valid simulation"
QUESTION = "Are simulations valid, and near the observation, as often as the model of failures says?"
GROUPS = 3  # of ten that count: where failures are rare, most groups have none, and no noise
# Of a mean of so many |N(0, 1)|, relative to its expectation.
RELATIVE_SD = math.sqrt((math.pi / 2 - 1) / GROUPS)
MATERIAL = 0.02  # miscalibration that matters to nobody, however significant


def validity_calibration(records: Sequence[Mapping[str, Any]]) -> Check:
    """Check the model of failures.

    Args:
        records: the metrics of the fit; the last one of stage "validity" counts.

    Raises:
        NotApplicable: no simulation failed, or failures are no part of the model.
    """
    told = [record for record in records if record.get("stage") == "validity"]
    if not told:
        raise NotApplicable("failures are no part of this model, or there were none.")
    rate, error, noise = (float(told[-1][name]) for name in ("rate", "calibration_error", "calibration_noise"))
    excess = max(error - noise, 0.0)
    numbers = {"valid_and_near": rate, "calibration_error": error, "of_it_noise": noise}
    if excess < MATERIAL:
        verdict = "good"
    else:
        numbers["p_value"] = float(norm.sf((error / noise - 1) / RELATIVE_SD)) if noise > 0 else 0.0
        verdict = verdict_of(numbers["p_value"])
    advice = (
        "Predicted and observed shares agree."
        if verdict == "good"
        else "Failures are predicted too often or too rarely somewhere: simulate more, or look where they happen."
    )
    return Check("validity", TITLE, QUESTION, verdict, numbers, advice)
