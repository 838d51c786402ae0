"""Did training go well?  The records that the fit left behind.

Three things to look at: whether training diverged and had to be rolled back; whether, at the end, the energies of data
and of the model's own particles still differ (in equilibrium their gap is zero); and whether the likelihood of held-out
rows rose, and had stopped rising when the steps ran out.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unle.diagnose.record import Check, NotApplicable, Verdict, worst

TITLE = "Health of the training"
QUESTION = "Did the energy learn, and settle?"
GAP = (0.5, 3.0)  # nats, over the last chunks: doubtful and bad from here on
RECOVERIES = (1.0, 10.0)  # roll-backs
LAST = 3  # chunks
STILL_RISING = 0.05  # nats per chunk over the last chunks
LOWEST_ESS = (0.05, 0.005)  # share of the particles that carry weight


def training_health(metrics: Sequence[Mapping[str, Any]]) -> Check:
    """Check the training records of a run.

    Args:
        metrics: of `RunDirectory.read_metrics`.

    Returns:
        A `Check`; arrays `gain` and `gap`, chunk by chunk, of the energy that was kept.

    Raises:
        NotApplicable: there are no training records.
    """
    training = [record for record in metrics if record.get("stage") == "training"]
    if not training:
        raise NotApplicable("the run has no records of training.")
    fitted = next((record for record in metrics[::-1] if record.get("stage") == "fitted"), {})
    sees_theta = fitted.get("energy", "full") != "theta-free"
    chunks = [r for r in training if bool(r.get("sees_theta", True)) is sees_theta] or training
    gain, gap = (np.array([float(record[name]) for record in chunks]) for name in ("gain", "gap"))
    share = float(np.median([float(record.get("ess", 1.0)) for record in chunks[-LAST:]]))
    last_gap = float(np.median(np.abs(gap[-LAST:])))
    recoveries = max(float(record.get("recoveries", 0)) for record in chunks)
    slope = float((gain[-1] - gain[-1 - LAST]) / LAST) if len(gain) > LAST else 0.0
    unfinished = fitted.get("outcome") == "BUDGET_SPENT" and slope > STILL_RISING
    kept = fitted.get("energy", "full")
    verdicts: dict[str, Verdict] = {
        "gap": _above(last_gap, GAP),
        "recoveries": _above(recoveries, RECOVERIES),
        "ess": _above(-share, (-LOWEST_ESS[0], -LOWEST_ESS[1])),
        "unfinished": "doubtful" if unfinished else "good",
        "outcome": "bad" if fitted.get("outcome") == "DIVERGED" or not np.isfinite(gain[-1]) else "good",
    }
    numbers = {
        "held_out_gain": float(fitted.get("gain", gain.max())),
        "energy_gap": last_gap,
        "roll_backs": recoveries,
        "particle_ess": share,
    }
    advice = _advice(verdicts, kept)
    return Check(
        "training", TITLE, QUESTION, worst(list(verdicts.values())), numbers, advice, {"gain": gain, "gap": gap}
    )


def _above(value: float, thresholds: tuple[float, float]) -> Verdict:
    if not value < thresholds[1]:  # NaN is bad too
        return "bad"
    return "good" if value < thresholds[0] else "doubtful"


def _advice(verdicts: dict[str, Verdict], kept: str) -> str:
    if verdicts["outcome"] == "bad":
        return "Training diverged: look for wild or constant columns in the data, and fit again."
    if verdicts["recoveries"] != "good":
        return "Training diverged at times and was rolled back: compare with a fit under another seed."
    if verdicts["gap"] != "good" or verdicts["ess"] != "good":
        return "The particles lag behind the model: fit again with more of them, or compare with another seed."
    if verdicts["unfinished"] != "good":
        return "The held-out likelihood was still rising when the steps ran out: fit again with more --iterations."
    if kept == "none":
        return "The energies did not beat the fitted Gaussian on held-out rows, which was kept alone."
    return "The held-out likelihood rose and settled, without roll-backs."
