"""Expected coverage: do regions of highest posterior density hold the truth as often as they promise?

The share of draws with a higher posterior density than theta* is the smallest content of a region that includes it. It
is uniform if the posterior is right; its distribution function is the coverage as a function of the promised content.
Above the diagonal the posterior is too cautious, below it is overconfident.  All parameters are looked at together,
through the density, so it sees errors in their dependence that the marginals of SBC hide.

Reference: Hermans et al., "A trust crisis in simulation-based inference?", 2022.
"""

import numpy as np

from unle.diagnose.calibration import Calibration
from unle.diagnose.record import Check
from unle.diagnose.sbc import advice_for, judged, require
from unle.diagnose.uniformity import uniformity
from unle.errors import InputError

TITLE = "Expected coverage"
QUESTION = "Do credible regions hold the truth as often as they say?"


def coverage(calibration: Calibration) -> Check:
    """Check the coverage of regions of highest density.

    Args:
        calibration: posteriors with known truths and densities.

    Returns:
        A `Check`, with the content needed to reach every truth as array `levels`.
    """
    require(calibration)
    if calibration.heights is None or calibration.true_height is None:
        raise InputError("expected log-densities of the draws; try Calibration.of_draws(..., heights=...).")
    levels = 1 - calibration.levels(calibration.heights, calibration.true_height, stream=101)
    test = uniformity(levels)
    at_95 = float(np.mean(levels <= 0.95))
    verdict = judged(test.p_value, test.gap, calibration)
    tilt = test.coefficients[0]
    manner = "wrong in shape" if abs(tilt) < 2.5 else "overconfident" if tilt > 0 else "too cautious"
    at_half = float(np.mean(levels <= 0.5))
    what = f"The posterior is {manner}: its 50 % regions hold {at_half:.0%} of the truths, its 95 % regions {at_95:.0%}"
    return Check(
        "coverage",
        TITLE,
        QUESTION,
        verdict,
        {"p": test.p_value, "coverage_of_95%": at_95, "posteriors": len(calibration), "largest_gap": test.gap},
        advice_for(verdict, test.p_value, calibration, what),
        {"levels": levels},
    )
