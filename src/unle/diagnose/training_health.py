"""Did training go well?  The records that the fit left behind.

Three things to look at: whether training diverged and had to be rolled back; whether the energies of data and of the
model's own particles differ (in equilibrium their gap is zero); and whether the likelihood of held-out rows rose, and
had stopped rising when the steps ran out.  The model that is kept is the one of the best chunk, so gap and particles
are judged there: what happened to an energy afterwards, when it began to overfit, was thrown away.

Flows and score matching (nle, snle, smnle) have no particles.  Theirs is a plain descent, of which the held-out loss is
all there is to see.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unle.diagnose.record import Check, NotApplicable, Verdict, worst

TITLE = "Health of the training"
QUESTION = "Did the model learn, and settle?"
GAP = (0.5, 3.0)  # nats, over the last chunks: doubtful and bad from here on
RECOVERIES = (1.0, 10.0)  # roll-backs
LAST = 3  # chunks
STILL_RISING = 0.05  # nats per chunk over the last chunks
STILL_FALLING = 0.05  # share of the whole fall of a loss that came in its last fifth
LOWEST_ESS = (0.05, 0.005)  # share of the particles that carry weight
LITTLE = 0.05  # nats of held-out gain that hardly show


def training_health(metrics: Sequence[Mapping[str, Any]]) -> Check:
    """Check the training records of a run.

    Args:
        metrics: of `RunDirectory.read_metrics`.

    Returns:
        A `Check`; arrays `gain` and `gap`, chunk by chunk, of the energy that was kept, or `held_out` and `loss` of a
        descent.

    Raises:
        NotApplicable: there are no training records.
    """
    training = [record for record in metrics if record.get("stage") == "training"]
    descent = [record for record in metrics if record.get("stage") == "descent"]
    if not training and descent:
        return _of_descent(descent)
    if not training:
        raise NotApplicable("the run has no records of training.")
    fitted = next((record for record in metrics[::-1] if record.get("stage") == "fitted"), {})
    kept = str(fitted.get("energy", "full"))
    shown = "full" if kept == "none" else kept
    chunks = [record for record in training if _kind(record) == shown] or training
    gain, gap = (np.array([float(record[name]) for record in chunks]) for name in ("gain", "gap"))
    best = int(np.nanargmax(gain)) if np.isfinite(gain).any() else len(gain) - 1
    until = max(best + 1, min(LAST, len(gain)))
    share = float(np.median([float(record.get("ess", 1.0)) for record in chunks[:until][-LAST:]]))
    last_gap = float(np.median(np.abs(gap[:until][-LAST:])))
    recoveries = max(float(record.get("recoveries", 0)) for record in chunks)
    slope = float((gain[-1] - gain[-1 - LAST]) / LAST) if len(gain) > LAST else 0.0
    unfinished = fitted.get("outcome") == "BUDGET_SPENT" and slope > STILL_RISING
    verdicts: dict[str, Verdict] = {
        "gap": _above(last_gap, GAP),
        "recoveries": _above(recoveries, RECOVERIES),
        "ess": _above(-share, (-LOWEST_ESS[0], -LOWEST_ESS[1])),
        "unfinished": "doubtful" if unfinished else "good",
        "outcome": "bad" if fitted.get("outcome") == "DIVERGED" or not np.isfinite(gain[best]) else "good",
    }
    if kept == "none":  # whatever happened to energies that were thrown away does no harm
        verdicts = dict.fromkeys(verdicts, "good")
    total = float(fitted.get("gain", gain[best]))
    numbers = {
        "held_out_gain": total,
        "energy_gap": last_gap,
        "roll_backs": recoveries,
        "particle_ess": share,
        "best_chunk": best + 1,
    }
    fell = bool(len(gain) - 1 - best >= LAST and gain[-1] < gain[best] - LITTLE)
    advice = _advice(verdicts, kept, total, fell=fell)
    return Check(
        "training", TITLE, QUESTION, worst(list(verdicts.values())), numbers, advice, {"gain": gain, "gap": gap}
    )


def _kind(record: Mapping[str, Any]) -> str:
    if not record.get("sees_theta", True):
        return "theta-free"
    return "continued" if record.get("continued", False) else "full"


def _of_descent(records: Sequence[Mapping[str, Any]]) -> Check:
    held_out, loss = (np.array([float(record[name]) for record in records]) for name in ("held_out", "loss"))
    last = records[-1]
    fall = float(held_out[0] - held_out[-1])
    window = max(LAST, len(held_out) // 5)
    late = float(held_out[-1 - window] - held_out[-1]) if len(held_out) > window else 0.0
    ran_out = "steps" in last and int(last["step"]) >= int(last["steps"])
    verdict: Verdict = "good"
    advice = "The held-out loss fell and settled."
    if not np.isfinite(held_out[-1]):
        verdict, advice = "bad", "Training diverged: look for wild or constant columns in the data, and fit again."
    elif ran_out and late > STILL_FALLING * max(fall, 1e-12):
        verdict = "doubtful"
        advice = "The held-out loss was still falling when the steps ran out: fit again with more --iterations."
    elif fall <= 0:
        verdict, advice = "doubtful", "The held-out loss never fell: nothing was learned; look at the data."
    numbers = {"held_out_loss": float(held_out[-1]), "fall": fall, "late_fall": late, "steps": int(last["step"])}
    return Check("training", TITLE, QUESTION, verdict, numbers, advice, {"held_out": held_out, "loss": loss})


def _above(value: float, thresholds: tuple[float, float]) -> Verdict:
    if not value < thresholds[1]:  # NaN is bad too
        return "bad"
    return "good" if value < thresholds[0] else "doubtful"


def _advice(verdicts: dict[str, Verdict], kept: str, gain: float, *, fell: bool) -> str:
    if verdicts["outcome"] == "bad":
        return "Training diverged: look for wild or constant columns in the data, and fit again."
    if verdicts["recoveries"] != "good":
        return "Training diverged at times and was rolled back: compare with a fit under another seed."
    if verdicts["gap"] != "good" or verdicts["ess"] != "good":
        return "The particles lag behind the model: fit again with more of them, or compare with another seed."
    if verdicts["unfinished"] != "good":
        return "The held-out likelihood was still rising when the steps ran out: fit again with more --iterations."
    if kept == "none":
        return "The energies did not beat the base on held-out rows, which was kept alone."
    if gain < LITTLE:
        return (
            "The energies hardly beat the fitted Gaussian on held-out rows: it is nearly right, or there are too few "
            "simulations to learn more."
        )
    if fell:
        return f"The held-out likelihood rose by {gain:.2g} nats and then fell: the best chunk was kept."
    return "The held-out likelihood rose and settled, without roll-backs."
