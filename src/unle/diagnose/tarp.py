"""TARP: is the truth as far from a random point as the draws are?

Tests of accuracy with random points: for every simulated observation pick a reference point at random, and take the
level of |theta* - reference| among the distances of the draws.  It is uniform if the posterior is right, however the
point was picked, as long as theta* had no part in it.  Distances need no density, and they look at all parameters
together.

Points from the prior would be blind to a posterior that has learned nothing: the prior itself passes SBC, coverage and
TARP with such points.  So the points depend on x*: one half of the pairs predicts theta from x by least squares, and
the points of the other half are its predictions plus residuals of its own, and vice versa.

Reference: Lemos, Coogan, Hezaveh and Perreault-Levasseur, "Sampling-based accuracy testing of posterior estimators for
general inference", 2023.
"""

import numpy as np
from jaxtyping import Float

from unle.diagnose.calibration import Calibration
from unle.diagnose.leading import leading
from unle.diagnose.record import Check
from unle.diagnose.sbc import advice_for, judged, require
from unle.diagnose.uniformity import uniformity

TITLE = "Distance to random points (TARP)"
QUESTION = "Is the joint posterior of all parameters right, on average over the prior?"


def tarp(calibration: Calibration, *, seed: int = 0) -> Check:
    """Check the distances to random points.

    Args:
        calibration: posteriors with known truths.
        seed: of the reference points.

    Returns:
        A `Check`, with the levels of the truths as array `levels`.
    """
    require(calibration)
    scale = np.maximum(calibration.truth.std(axis=0), 1e-12)
    reference = references(calibration.truth, calibration.x, seed=seed)

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


def references(
    truth: Float[np.ndarray, "n dim"], x: Float[np.ndarray, "n dim_x"], *, seed: int = 0
) -> Float[np.ndarray, "n dim"]:
    """Return one random point for every observation, which depends on it but not on its own truth."""
    rng = np.random.default_rng([seed, 202])
    scores, _ = leading(np.asarray(x, float))
    features = np.concatenate([np.ones((len(x), 1)), scores, scores**2], axis=1)
    order = rng.permutation(len(truth))
    halves = order[: len(order) // 2], order[len(order) // 2 :]
    points = np.empty(truth.shape)
    for mine, other in (halves, halves[::-1]):
        # A ridge keeps what few pairs cannot tell apart from running wild.
        gram = features[other].T @ features[other] + 1e-3 * len(other) * np.eye(features.shape[1])
        learned = np.linalg.solve(gram, features[other].T @ truth[other])
        residuals = truth[other] - features[other] @ learned
        points[mine] = features[mine] @ learned + residuals[rng.integers(len(other), size=len(mine))]
    return points
