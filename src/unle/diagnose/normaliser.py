r"""Is the normaliser of the model known?  Three checks; none of them sees a wrong shape of the likelihood.

*normaliser.*  The posterior of a jointly trained energy (`unle.Tilted`) takes for granted that Z(theta) is the same for
every theta.  The mathematics is in `z_of_theta`.

*certificate.*  Can Z_pi of a model q0 exp(-E) be computed from draws of its base q0?  Two estimates of log Z_pi must
agree: one from draws of the base, which is too low if the energy has mass where no draw went, and one from draws half
of which come from the base widened by one half, with weights that make up for it.  The fit writes their difference with
its standard error; the shape of the tail of the weights (Pareto k: below 0.7 their mean converges fast enough to be
used, from 1 on it does not exist); and the share of held-out data that outweigh every draw, which would be about one in
the number of draws if these covered the data.

    good       |gap| < 0.15 nats + 2 errors, k < 0.7, and fewer than 5 % of the data outweigh
    doubtful   |gap| < 0.5 nats + 2 errors, k < 1
    bad        beyond

It judges a constant, on average over theta: a Z(theta) that varies is the business of `normaliser`.

*learned_normaliser.*  A doubly intractable likelihood divided by a learned normaliser has the posterior of the model up
to the factor exp(error of log Z).  Where the fit of the normaliser ended, it was compared with estimates by sequential
Monte Carlo at theta it had not seen.  Estimates are noisy; what their noise does not explain is the error,

    s^2 = (sd of the differences)^2 - (sd of the noise)^2,

in nats.  Weights of log-sd s cost an otherwise perfect posterior a C2ST of about Phi(s / 2).  Errors far from the
posterior are not seen.

Reference: Vehtari, Simpson, Gelman, Yao and Gabry, "Pareto smoothed importance sampling", 2024.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from unle.diagnose.record import Check, CheckKind, NotApplicable, Verdict, grade, last_record, worst
from unle.diagnose.z_of_theta import BAD, GOOD, ZUniformity

NORMALISER = CheckKind(
    "normaliser",
    "Constant normaliser",
    "Is the model's normaliser the same for every theta, as its posterior assumes?",
)
CERTIFICATE = CheckKind(
    "certificate",
    "Normaliser from two sides",
    "Do the draws of the base reach wherever the model has mass?",
)
PARETO_K = (0.7, 1.0)  # the mean converges slowly, and does not exist, from here on
OUTWEIGH = (0.05, math.inf)  # share of held-out data heavier than every draw; never bad by itself
LEARNED_NORMALISER = CheckKind(
    "learned_normaliser",
    "Learned normaliser",
    "Is the learned log Z(theta) right around the posterior?",
)


def normaliser(uniformity: ZUniformity) -> Check:
    """Return the finding of `z_uniformity` as a `Check`."""
    numbers = {
        "sd_of_log_Z": uniformity.sd,
        "expected_c2st": uniformity.expected_c2st,
        "weight_ess": uniformity.weight_ess,
        "ess_behind_Z": uniformity.ess * uniformity.n_data,
    }
    arrays = {"log_z": uniformity.log_z, "theta": uniformity.theta}
    return NORMALISER.result(uniformity.verdict, numbers, uniformity.advice, arrays, uniformity.names)


def certificate(records: Sequence[Mapping[str, Any]]) -> Check:
    """Check the normaliser Z_pi that training estimated, by the last record of stage "certificate"."""
    record = last_record(records, "certificate", "the fit did not estimate its normaliser from two sides.")
    gap, error, k, outweigh = (float(record[name]) for name in ("log_z_gap", "log_z_error", "pareto_k", "outweigh"))
    noise = 2 * error
    verdicts: dict[str, Verdict] = {
        "gap": grade(abs(gap), (GOOD + noise, BAD + noise)),
        "weights": grade(k, PARETO_K),
        "reach": grade(outweigh, OUTWEIGH),
    }
    numbers = {"log_Z_gap": gap, "standard_error": error, "pareto_k": k, "outweigh": outweigh}
    return CERTIFICATE.result(worst(list(verdicts.values())), numbers, _certificate_advice(verdicts))


def _certificate_advice(verdicts: dict[str, Verdict]) -> str:
    if verdicts["gap"] != "good":
        return "The model has mass that the draws of its base do not reach, or too little where they go: simulate more."
    if verdicts["weights"] != "good":
        return "A few draws of the base carry the estimate of the normaliser: it may be far off; simulate more."
    if verdicts["reach"] != "good":
        return "Many data lie where no draw of the base does: the normaliser is guesswork there; simulate more."
    return "Both estimates of the normaliser agree."


def learned_normaliser(records: Sequence[Mapping[str, Any]]) -> Check:
    """Check the normaliser that a sequential run learned, by the last record of stage "normalised"."""
    record = last_record(records, "normalised", "no normaliser was learned.")
    error_sd, noise_sd = float(record.get("error_sd", math.nan)), float(record.get("noise_sd", math.nan))
    if not math.isfinite(error_sd):
        raise NotApplicable("no normaliser was learned.")
    excess = math.sqrt(max(error_sd**2 - noise_sd**2, 0.0))
    verdict = grade(excess, (GOOD, BAD))
    advice = {
        "good": "What is left of its error does not show in the posterior.",
        "doubtful": "Train it longer, Divi(LogNormaliserTraining(iterations=...)), or compare with ByExchange().",
        "bad": "The posterior is distorted by it: train it longer, or sample with normaliser=ByExchange().",
    }[verdict]
    if noise_sd > BAD:
        verdict = "doubtful" if verdict == "good" else verdict
        advice = "The estimates that it was compared with are too noisy to tell; compare with ByExchange()."
    numbers = {
        "sd_of_error": excess,
        "largest_difference": float(record.get("error", math.nan)),
        "noise": noise_sd,
        "expected_c2st": 0.5 * (1 + math.erf(excess / 2 / math.sqrt(2))),
    }
    return LEARNED_NORMALISER.result(verdict, numbers, advice)
