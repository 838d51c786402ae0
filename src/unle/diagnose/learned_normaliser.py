r"""Is a learned log Z(theta) right where the posterior is?

A doubly intractable likelihood divided by a learned normaliser has the posterior of the model up to the factor
exp(error of log Z). Where the fit of the normaliser ended, it was compared with estimates by sequential Monte Carlo at
theta it had not seen. Estimates are noisy; what their noise does not explain is the error,

    s^2 = (sd of the differences)^2 - (sd of the noise)^2,

in nats. Weights of log-sd s cost an otherwise perfect posterior a C2ST of about Phi(s / 2).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from unle.diagnose.record import Check, NotApplicable, Verdict
from unle.diagnose.z_uniformity import BAD, GOOD

TITLE = "Learned normaliser"
QUESTION = "Is the learned log Z(theta) right around the posterior?"


def learned_normaliser(records: Sequence[Mapping[str, Any]]) -> Check:
    """Check the normaliser that a sequential run learned.

    Args:
        records: the metrics of the fit; the last one of stage "normalised" counts.

    Raises:
        NotApplicable: no normaliser was learned.
    """
    told = [record for record in records if record.get("stage") == "normalised"]
    if not told or not math.isfinite(float(told[-1].get("error_sd", math.nan))):
        raise NotApplicable("no normaliser was learned.")
    error_sd, noise_sd = float(told[-1]["error_sd"]), float(told[-1]["noise_sd"])
    excess = math.sqrt(max(error_sd**2 - noise_sd**2, 0.0))
    verdict: Verdict = "good" if excess < GOOD else "doubtful" if excess < BAD else "bad"
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
        "largest_difference": float(told[-1].get("error", math.nan)),
        "noise": noise_sd,
        "expected_c2st": 0.5 * (1 + math.erf(excess / 2 / math.sqrt(2))),
    }
    return Check("learned_normaliser", TITLE, QUESTION, verdict, numbers, advice)
