r"""What do the records of the fit say?  Four checks that need nothing else; none says whether the result is right.

*training.*  Three things to look at: whether training diverged and had to be rolled back; whether the energies of data
and of the model's own particles differ (in equilibrium their gap is zero); and whether the likelihood of held-out rows
rose, and had stopped rising when the steps ran out.  The model that is kept is the one of the best chunk, so gap and
particles are judged there: what happened to an energy afterwards, when it began to overfit, was thrown away.  Flows and
score matching (nle, snle, smnle) have no particles.  Theirs is a plain descent, of which the held-out loss is all there
is to see.

*information.*  On rows that the fit held back, the learned likelihood of x at its own theta is compared with that at
the thetas of other rows,

    I = mean_i [ log q(x_i | theta_i) - log mean_j q(x_i | theta_j) ],

an estimate, from below if q is wrong, of how many nats a simulation says about theta.  At zero q might as well not look
at theta: the posterior is the prior, which passes every check of calibration.  It cannot tell data that say nothing
from a fit that did not learn what they say.

*validity.*  Where simulations fail, the likelihood of an observation has the factor P(valid | theta), learned from
which simulations failed, or came out far from the observation.  On rows that the fit held back, sorted into ten groups
by their prediction, the share of valid rows near the observation is compared with the prediction.  The mean absolute
difference has a known expectation and spread for perfect probabilities, from the size of the groups alone; what is
beyond is miscalibration.  Places without simulations are not seen.

*rounds.*  Rounds simulate where the last fit put the posterior.  A fit that is wrong there leads the next round astray,
and what is not simulated is never corrected.  The run looks after every round whether x_o is still among its
simulations, writes a record where it is not, and tries to find its way back.  `lost_rounds` reads those records.  A run
that lost part of the posterior, a mode say, while x_o stayed among its simulations, is not seen.  The table `rounds`
says how the rounds went: were simulations valid, did they come closer to x_o, did the proposal shrink?
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from unle.diagnose.record import (
    Check,
    CheckKind,
    NotApplicable,
    Verdict,
    grade,
    grade_low,
    last_record,
    verdict_of,
    worst,
)

TRAINING = CheckKind("training", "Health of the training", "Did the model learn, and settle?")
GAP = (0.5, 3.0)  # nats, over the last chunks: doubtful and bad from here on
RECOVERIES = (1.0, 10.0)  # roll-backs
LAST = 3  # chunks
STILL_RISING = 0.05  # nats per chunk over the last chunks
STILL_FALLING = 0.05  # share of the whole fall of a loss that came in its last fifth
LOWEST_ESS = (0.05, 0.005)  # share of the particles that carry weight
LITTLE = 0.05  # nats of held-out gain that hardly show

INFORMATION = CheckKind(
    "information",
    "Information about the parameters",
    "Does the learned likelihood depend on the parameters at all?",
)
STANDARD_ERRORS = 2.0  # above zero that are asked for: chance alone reaches them once in 44 fits

VALIDITY = CheckKind(
    "validity",
    "Probability of a valid simulation",
    "Are simulations valid, and near the observation, as often as the model of failures says?",
)
GROUPS = 3  # of ten that count: where failures are rare, most groups have none, and no noise
RELATIVE_SD = math.sqrt((math.pi / 2 - 1) / GROUPS)  # of a mean of so many |N(0, 1)|, relative to its expectation
MATERIAL_ERROR = 0.02  # miscalibration that matters to nobody, however significant
ROUNDS = CheckKind("rounds", "Rounds that lost the observation", "Did every round stay around the observation?")


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
    chunks = last_training([record for record in training if _kind(record) == shown] or training)
    gain, gap = (np.array([float(record[name]) for record in chunks]) for name in ("gain", "gap"))
    best = int(np.nanargmax(gain)) if np.isfinite(gain).any() else len(gain) - 1
    until = max(best + 1, min(LAST, len(gain)))
    share = float(np.median([float(record.get("ess", 1.0)) for record in chunks[:until][-LAST:]]))
    last_gap = float(np.median(np.abs(gap[:until][-LAST:])))
    recoveries = max(float(record.get("recoveries", 0)) for record in chunks)
    slope = float((gain[-1] - gain[-1 - LAST]) / LAST) if len(gain) > LAST else 0.0
    unfinished = fitted.get("outcome") == "BUDGET_SPENT" and slope > STILL_RISING
    verdicts: dict[str, Verdict] = {
        "gap": grade(last_gap, GAP),
        "recoveries": grade(recoveries, RECOVERIES),
        "ess": grade_low(share, LOWEST_ESS),
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
    advice = _training_advice(verdicts, kept, total, fell=fell)
    return TRAINING.result(worst(list(verdicts.values())), numbers, advice, {"gain": gain, "gap": gap})


def last_training(records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the chunks of the last training: energies of one kind are trained again on other bases, or in every round.

    Example:
        >>> [record["gain"] for record in last_training([{"chunk": c, "gain": g} for c, g in [(0, 1), (1, 2), (0, 3)]])]
        [3]
    """
    numbers = [int(record.get("chunk", k)) for k, record in enumerate(records)]
    starts = [k for k in range(1, len(numbers)) if numbers[k] <= numbers[k - 1]]
    return list(records[starts[-1] if starts else 0 :])


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
    return TRAINING.result(verdict, numbers, advice, {"held_out": held_out, "loss": loss})


def _training_advice(verdicts: dict[str, Verdict], kept: str, gain: float, *, fell: bool) -> str:
    if verdicts["outcome"] == "bad":
        return "Training diverged: look for wild or constant columns in the data, and fit again."
    if verdicts["recoveries"] != "good":
        return "Training diverged at times and was rolled back: compare with a fit under another seed."
    if verdicts["gap"] != "good" or verdicts["ess"] != "good":
        return "The particles lag behind the model: fit again with more of them, or compare with another seed."
    if verdicts["unfinished"] != "good":
        return "The held-out likelihood was still rising when the steps ran out: fit again with more --iterations."
    if kept == "none":
        return (
            "No energy was kept: on held-out rows a base alone is as good, or better. The curve is of energies that "
            "were tried."
        )
    if gain < LITTLE:
        return (
            "The energies hardly beat the fitted Gaussian on held-out rows: it is nearly right, or there are too few "
            "simulations to learn more."
        )
    if fell:
        return f"The held-out likelihood rose by {gain:.2g} nats and then fell: the best chunk was kept."
    return "The held-out likelihood rose and settled, without roll-backs."


def information(records: Sequence[Mapping[str, Any]]) -> Check:
    """Check, by the last record of stage "information", that the held-out likelihood knows theta."""
    record = last_record(records, "information", "the fit did not measure it.")
    nats, error = float(record["nats"]), float(record["error"])
    learned = math.isfinite(nats) and math.isfinite(error) and nats >= STANDARD_ERRORS * error and nats > 0
    verdict: Verdict = "good" if learned else "bad"
    advice = (
        f"A simulation says {nats:.2g} nats about the parameters."
        if learned
        else "The fit is no better than ignoring theta: the data carry no information about the parameters, or it was "
        "not learned; the posterior is the prior."
    )
    p_value = _upper_tail(nats / error) if error > 0 else float(not learned)
    return INFORMATION.result(verdict, {"nats": nats, "standard_error": error, "p": p_value}, advice)


def _upper_tail(z: float) -> float:
    """Return P(N(0, 1) > z)."""
    return 0.5 * math.erfc(z / math.sqrt(2))


def validity_calibration(records: Sequence[Mapping[str, Any]]) -> Check:
    """Check the model of failures, by the last record of stage "validity"."""
    record = last_record(records, "validity", "failures are no part of this model, or there were none.")
    rate, error, noise = (float(record[name]) for name in ("rate", "calibration_error", "calibration_noise"))
    excess = max(error - noise, 0.0)
    numbers = {"valid_and_near": rate, "calibration_error": error, "of_it_noise": noise}
    if excess < MATERIAL_ERROR:
        verdict = "good"
    else:
        numbers["p_value"] = _upper_tail((error / noise - 1) / RELATIVE_SD) if noise > 0 else 0.0
        verdict = verdict_of(numbers["p_value"])
    advice = (
        "Predicted and observed shares agree."
        if verdict == "good"
        else "Failures are predicted too often or too rarely somewhere: simulate more, or look where they happen."
    )
    return VALIDITY.result(verdict, numbers, advice)


def lost_rounds(records: Sequence[Mapping[str, Any]]) -> Check:
    """Check the rounds of a sequential run, by its records of stage "lost"."""
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
    """One number per round."""

    number: Float[np.ndarray, " round"]  # of the round
    simulations: Float[np.ndarray, " round"]  # made in it
    valid: Float[np.ndarray, " round"]  # share of them
    # median distance of x from x_o, in standard deviations of the first round's x
    distance: Float[np.ndarray, " round"]
    width: Float[np.ndarray, " round"]  # geometric mean of the parameters' spread, relative to the first round


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
