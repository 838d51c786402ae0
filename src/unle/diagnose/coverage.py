"""Expected coverage: do regions of highest posterior density hold the truth as often as they promise?

The share of draws with a higher posterior density than theta* is the smallest content of a region that includes it. It
is uniform if the posterior is right; its distribution function is the coverage as a function of the promised content.
Above the diagonal the posterior is too cautious, below it is overconfident.  All parameters are looked at together,
through the density, so it sees errors in their dependence that the marginals of SBC hide.

A test of the whole curve can miss an error in its last twentieth, which is where regions of 95 % end.  So two points of
the curve are tested by themselves.  The number of truths in the regions is binomial if the posterior is right:

    95 % regions: doubtful if so few have a probability below .01;
    50 % regions: doubtful if so few, or so many, have a probability below .005;

and bad below .001 and .0005.  With 300 posteriors these are coverages of less than 92 % in the first case, less than
42.7 % or more than 57.3 % in the second.  A right posterior is called otherwise by these looks in 1.8 % of all cases,
and one whose 95 % regions hold 88 % of the truths is called good by the first in 1.7 %.

Reference: Hermans et al., "A trust crisis in simulation-based inference?", 2022.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.stats import binom

from unle.diagnose.calibration import Calibration
from unle.diagnose.record import Check, verdict_of, worst
from unle.diagnose.sbc import advice_for, judged, require
from unle.diagnose.uniformity import uniformity
from unle.errors import InputError

TITLE = "Expected coverage"
QUESTION = "Do credible regions hold the truth as often as they say?"


class Held(NamedTuple):
    """What regions of two sizes hold.

    Attributes:
        at_95: share of the truths in regions that promise 95 %.
        at_50: the same of 50 %.
        p_value: of the more surprising of the two.
    """

    at_95: float
    at_50: float
    p_value: float


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
    test, regions = uniformity(levels), held(levels)
    verdict = worst([judged(test.p_value, test.gap, calibration), verdict_of(regions.p_value)])
    tilt = test.coefficients[0]
    manner = "wrong in shape" if abs(tilt) < 2.5 else "overconfident" if tilt > 0 else "too cautious"
    if regions.p_value < test.p_value:
        manner = "too cautious" if regions.at_50 > 0.5 and regions.at_95 >= 0.95 else "overconfident"
    what = (
        f"The posterior is {manner}: its 50 % regions hold {regions.at_50:.0%} of the truths, "
        f"its 95 % regions {regions.at_95:.0%}"
    )
    numbers = {
        "p": min(test.p_value, regions.p_value),
        "coverage_of_95%": regions.at_95,
        "coverage_of_50%": regions.at_50,
        "posteriors": len(calibration),
        "largest_gap": test.gap,
    }
    advice = advice_for(verdict, numbers["p"], calibration, what)
    return Check("coverage", TITLE, QUESTION, verdict, numbers, advice, {"levels": levels})


def held(levels: Float[np.ndarray, " n"]) -> Held:
    """Return how often the truth lies in regions of 95 % and 50 %, and how surprising that is.

    Example:
        >>> import numpy as np
        >>> even = (np.arange(300) + 0.5) / 300
        >>> held(even).p_value > 0.5, held(even**0.5).p_value < 0.001
        (True, True)
    """
    n = len(levels)
    in_95, in_50 = int(np.sum(levels <= 0.95)), int(np.sum(levels <= 0.5))
    few_95 = binom.cdf(in_95, n, 0.95)
    few_50, many_50 = binom.cdf(in_50, n, 0.5), binom.sf(in_50 - 1, n, 0.5)
    return Held(in_95 / n, in_50 / n, float(min(few_95, 2 * few_50, 2 * many_50, 1.0)))
