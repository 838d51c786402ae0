"""Simulation-based calibration: is every parameter's truth just another draw of its posterior?

The levels of theta* among the draws, parameter by parameter, are uniform if the posterior is right on average over the
prior.  Crowded at both ends means too narrow a posterior, crowded in the middle too wide, crowded at one end shifted.

Reference: Talts, Betancourt, Simpson, Vehtari and Gelman, "Validating Bayesian inference algorithms with
simulation-based calibration", 2018.
"""

import numpy as np

from unle.diagnose.calibration import FEWEST_EFFECTIVE, Calibration
from unle.diagnose.record import Check, Verdict, at_most, bonferroni, verdict_of
from unle.diagnose.uniformity import FEWEST, MATERIAL, uniformity
from unle.errors import InputError

TITLE = "Simulation-based calibration"
QUESTION = "Are the marginals of each parameter right, on average over the prior?"
MEANS = {
    "narrow": "too narrow: its intervals promise more than they hold",
    "wide": "too wide: it is honest but wastes information",
    "low": "shifted: the truth tends to lie above it",
    "high": "shifted: the truth tends to lie below it",
    "": "not where the truth is",
}


def sbc(calibration: Calibration) -> Check:
    """Check the levels of every parameter.

    Args:
        calibration: posteriors with known truths; 300 of them show a width that is wrong by a quarter.

    Returns:
        A `Check` with the levels (n, dim) as array `levels`.
    """
    require(calibration)
    levels = np.stack(
        [
            calibration.levels(calibration.draws[..., i], calibration.truth[:, i], stream=i)
            for i in range(calibration.truth.shape[1])
        ],
        axis=1,
    )
    tests = [uniformity(column) for column in levels.T]
    p_value = bonferroni([test.p_value for test in tests])
    worst = int(np.argmin([test.p_value for test in tests]))
    verdict = judged(p_value, max(test.gap for test in tests), calibration)
    what = f"The posterior of {calibration.names[worst]} is {MEANS[tests[worst].direction]}"
    return Check(
        "sbc",
        TITLE,
        QUESTION,
        verdict,
        {
            "p": p_value,
            "posteriors": len(calibration),
            "effective_draws": calibration.effective,
            "largest_gap": max(test.gap for test in tests),
        },
        advice_for(verdict, p_value, calibration, what),
        {"levels": levels},
        calibration.names,
    )


def require(calibration: Calibration) -> None:
    """Refuse sets that are too small for a test."""
    if len(calibration) < FEWEST:
        raise InputError(f"expected at least {FEWEST} simulated observations; got {len(calibration)}; try 300.")


def judged(p_value: float, gap: float, calibration: Calibration) -> Verdict:
    """Return the verdict of a calibration check.

    A deviation too small to matter is never bad, however sure; one that passes on the simulations it was fitted to, or
    with hardly any effective draws, is never good.
    """
    verdict = verdict_of(p_value)
    if verdict == "bad" and gap < MATERIAL:
        verdict = "doubtful"
    weak = calibration.in_sample or calibration.effective < FEWEST_EFFECTIVE
    return at_most(verdict, "doubtful") if weak else verdict


def advice_for(verdict: Verdict, p_value: float, calibration: Calibration, what: str) -> str:
    """Return the sentence for a calibration check; `what` says what is wrong, if something is."""
    quiet = verdict_of(p_value) == "good"
    if quiet and calibration.effective < FEWEST_EFFECTIVE:
        return (
            f"No deviation was seen, but with {calibration.effective:.0f} effective draws per posterior this says "
            "little: there are too many parameters for weighted draws."
        )
    if quiet and calibration.in_sample:
        return (
            "No deviation was seen on the simulations of the fit itself, which flatters it; "
            "for a real test: unle check DIR --simulations 300."
        )
    if quiet:
        return "Nothing to see: as calibrated as this many simulations can tell."
    return f"{what}; fit again with more simulations, and check once more."
