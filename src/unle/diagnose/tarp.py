"""TARP: is the truth as far from a random point as the draws are?

Tests of accuracy with random points: for every simulated observation pick a reference point at random from the prior,
and take the level of |theta* - reference| among the distances of the draws.  It is uniform if the posterior is right.
Distances need no density, and they look at all parameters together.

Reference: Lemos, Coogan, Hezaveh and Perreault-Levasseur, "Sampling-based accuracy testing of posterior estimators for
general inference", 2023.
"""

import numpy as np

from unle.diagnose.calibration import Calibration
from unle.diagnose.record import Check
from unle.diagnose.sbc import advice_for, judged, require
from unle.diagnose.uniformity import uniformity

TITLE = "Distance to random points (TARP)"
QUESTION = "Is the joint posterior of all parameters right, on average over the prior?"


def tarp(calibration: Calibration, *, seed: int = 0) -> Check:
    """Check the distances to random points.

    Args:
        calibration: posteriors with known truths.
        seed: of the pairing of observations with reference points.

    Returns:
        A `Check`, with the levels of the truths as array `levels`.
    """
    require(calibration)
    rng = np.random.default_rng([seed, 202])
    scale = np.maximum(calibration.truth.std(axis=0), 1e-12)
    # The other truths are draws of the prior: shift them in a random order, so that nobody is their own reference.
    order = rng.permutation(len(calibration))
    reference = np.empty_like(calibration.truth)
    reference[order] = calibration.truth[np.roll(order, 1)]

    def distance(theta):
        return np.sqrt(np.sum((theta / scale) ** 2, axis=-1))

    draws = distance(calibration.draws - reference[:, None])
    levels = calibration.levels(draws, distance(calibration.truth - reference), stream=102)
    test = uniformity(levels)
    verdict = judged(test.p_value, test.gap, calibration)
    shape = {"narrow": "too narrow or off the mark", "wide": "too wide"}.get(test.direction, "off the mark")
    return Check(
        "tarp",
        TITLE,
        QUESTION,
        verdict,
        {"p": test.p_value, "posteriors": len(calibration), "largest_gap": test.gap},
        advice_for(verdict, test.p_value, calibration, f"The joint posterior is {shape}"),
        {"levels": levels},
    )
