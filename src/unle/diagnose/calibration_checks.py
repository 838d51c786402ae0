r"""Are the intervals honest?  Five checks of posteriors with known truths (see `calibration`).

    sbc            are the marginals of each parameter right, on average over the prior?
    coverage       do regions of highest posterior density hold the truth as often as they promise?
    tarp           is the joint posterior of all parameters right, on average over the prior?
    posterior_sbc  is the learned likelihood right for data like the observed?
    nearest        and for the most similar of them?

*SBC.*  The levels of theta* among the draws are uniform, parameter by parameter.  Crowded at both ends means too narrow
a posterior, crowded in the middle too wide, crowded at one end shifted.

*Coverage.*  The share of draws with a higher posterior density than theta* is the smallest content of a region that
includes it.  It is uniform; its distribution function is the coverage as a function of the promised content.  It sees
errors in the dependence of parameters that the marginals hide.  A test of the whole curve can miss an error in its last
twentieth, which is where regions of 95 % end.  So two points of the curve are tested by themselves.  The number of
truths in the regions is binomial if the posterior is right:

    95 % regions: doubtful if so few have a probability below .01;
    50 % regions: doubtful if so few, or so many, have a probability below .005;

and bad below .001 and .0005.  With 300 posteriors these are coverages of less than 92 % in the first case, less than
42.7 % or more than 57.3 % in the second.  A right posterior is called otherwise by these looks in 1.8 % of all cases,
and one whose 95 % regions hold 88 % of the truths is called good by the first in 1.7 %.

*TARP.*  Pick a reference point at random, and take the level of |theta* - reference| among the distances of the draws.
It is uniform however the point was picked, as long as theta* had no part in it.  Points from the prior would be blind
to a posterior that has learned nothing: the prior itself passes SBC, coverage and TARP with such points.  So the points
depend on x*: one half of the pairs predicts theta from x by least squares, and the points of the other half are its
predictions plus residuals of its own, and vice versa.

*Nearest.*  The same with those of many simulations at the draws that are nearest to x_o.  Which these are depends on
the simulated data alone, so the levels remain uniform.  It sees a likelihood that is right at most data and wrong at
those like x_o, which the other checks average away; it too trusts the draws to be where the posterior is.

*Posterior SBC* sees a wrong q(y | theta) for data like the observed, and a normaliser Z(theta) that varies there.  It
misses whatever went wrong on the way to the posterior: a mode that was lost, and an error of q at x_o itself, which is
one point among all y, give another prior, for which the test is as right as for the true one.

None of them sees errors at one place that others make up for, nor what the sampler did at x_o.

References: Talts, Betancourt, Simpson, Vehtari and Gelman, 2018 (SBC); Hermans et al., "A trust crisis in
simulation-based inference?", 2022 (coverage); Lemos, Coogan, Hezaveh and Perreault-Levasseur, 2023 (TARP); Sailynoja,
Schmitt, Burkner and Vehtari, 2025 (posterior SBC).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.stats import binom, rankdata

from unle.diagnose.calibration import FEWEST_EFFECTIVE, OF_X_O, OF_Y, Calibration
from unle.diagnose.p_values import FEWEST_NUMBERS, MATERIAL, uniformity, width
from unle.diagnose.record import Check, CheckKind, Verdict, at_most, bonferroni, short, verdict_of, worst
from unle.errors import InputError

SBC = CheckKind(
    "sbc",
    "Simulation-based calibration",
    "Are the marginals of each parameter right, on average over the prior?",
)
COVERAGE = CheckKind(
    "coverage",
    "Expected coverage",
    "Do credible regions hold the truth as often as they say?",
)
TARP = CheckKind(
    "tarp",
    "Distance to random points (TARP)",
    "Is the joint posterior of all parameters right, on average over the prior?",
)
POSTERIOR_SBC = CheckKind(
    "posterior_sbc",
    "Calibration around x_o (posterior SBC)",
    "Is the learned likelihood right for data like the observed, at the inferred parameters?",
)
NEAREST = CheckKind(
    "nearest",
    "Calibration nearest to x_o",
    "Is the learned likelihood right for the simulations that are most like the observed?",
)
DIRECTIONS = {
    "narrow": "too narrow: its intervals promise more than they hold",
    "wide": "too wide: its intervals are longer than the data warrant",
    "low": "shifted: the truth tends to lie above it",
    "high": "shifted: the truth tends to lie below it",
    "": "not where the truth is",
}
COMPONENTS = 3  # principal coordinates that stand for a data vector


def sbc(calibration: Calibration) -> Check:
    """Check the levels of every parameter.

    Args:
        calibration: posteriors with known truths; 300 of them show a width that is wrong by a quarter.

    Returns:
        A `Check` with the levels (n, dim) as array `levels`.
    """
    return _check_columns(SBC, calibration, 1.0, "The posterior of {name} is {manner}")


def posterior_sbc(around: Calibration, *, effective: float, kind: CheckKind = POSTERIOR_SBC) -> Check:
    """Check the levels of every parameter, and of both log-likelihoods.

    Args:
        around: posteriors given x_o and one more simulation each, from `calibrate_around`.
        effective: independent draws that all of them share.
        kind: `NEAREST` if the simulations are those most like x_o.

    Returns:
        A `Check` with the levels (n, dim + 2) as array `levels`.
    """
    variance = 1 + len(around) / effective
    which = "the simulations nearest to x_o" if kind is NEAREST else "simulations at the draws"
    what = f"For {which}, the posterior of {{name}} is {{manner}}"
    of_likelihood = f"For {which}, the learned likelihood is wrong: {{name}} does not rank as it should"
    return _check_columns(kind, around, variance, what, of_likelihood)


def _check_columns(
    kind: CheckKind, calibration: Calibration, variance: float, what: str, of_likelihood: str = ""
) -> Check:
    """Test the levels of every column; some are of log-likelihoods, which are neither wide nor narrow."""
    require(calibration)
    dim = calibration.truth.shape[1]
    levels = [calibration.levels(calibration.draws[..., i], calibration.truth[:, i], stream=i) for i in range(dim)]
    tests = [uniformity(column, variance=variance) for column in levels]
    found = [(test.p_value, name, test.direction) for test, name in zip(tests, calibration.names, strict=True)]
    for column, name in zip(levels, calibration.names, strict=True):
        if name not in (OF_Y, OF_X_O):
            of_width = width(column, variance=variance)
            found.append((of_width.p_value, name, of_width.direction))
    p_value, gap = bonferroni([p for p, *_ in found]), max(test.gap for test in tests)
    _, name, direction = min(found)
    reason = (of_likelihood if name in (OF_Y, OF_X_O) else what).format(name=name, manner=DIRECTIONS[direction])
    numbers = {
        "p": p_value,
        "posteriors": len(calibration),
        "effective_draws": calibration.effective,
        "largest_gap": gap,
    }
    advice = advice_for(p_value, calibration, reason)
    arrays = {"levels": np.stack(levels, axis=1)}
    return kind.result(judged(p_value, gap, calibration), numbers, advice, arrays, calibration.names)


class RegionCoverage(NamedTuple):
    """What regions of two sizes hold."""

    at_95: float  # share of the truths in regions that promise 95 %
    at_50: float  # the same of 50 %
    p_value: float  # of the more surprising of the two


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
    test, regions = uniformity(levels), region_coverage(levels)
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
    return COVERAGE.result(verdict, numbers, advice_for(numbers["p"], calibration, what), {"levels": levels})


def region_coverage(levels: Float[np.ndarray, " n"]) -> RegionCoverage:
    """Return how often the truth lies in regions of 95 % and 50 %, and how surprising that is.

    Example:
        >>> import numpy as np
        >>> even = (np.arange(300) + 0.5) / 300
        >>> region_coverage(even).p_value > 0.5, region_coverage(even**0.5).p_value < 0.001
        (True, True)
    """
    n = len(levels)
    in_95, in_50 = int(np.sum(levels <= 0.95)), int(np.sum(levels <= 0.5))
    few_95 = binom.cdf(in_95, n, 0.95)
    few_50, many_50 = binom.cdf(in_50, n, 0.5), binom.sf(in_50 - 1, n, 0.5)
    return RegionCoverage(in_95 / n, in_50 / n, float(min(few_95, 2 * few_50, 2 * many_50, 1.0)))


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
    shape = {"narrow": "too narrow or off the mark", "wide": "too wide"}.get(test.direction, "off the mark")
    numbers = {"p": test.p_value, "posteriors": len(calibration), "largest_gap": test.gap}
    advice = advice_for(test.p_value, calibration, f"The joint posterior is {shape}")
    return TARP.result(judged(test.p_value, test.gap, calibration), numbers, advice, {"levels": levels})


def references(
    truth: Float[np.ndarray, "n dim"], x: Float[np.ndarray, "n dim_x"], *, seed: int = 0
) -> Float[np.ndarray, "n dim"]:
    """Return one random point for every observation, which depends on it but not on its own truth."""
    rng = np.random.default_rng([seed, 202])
    scores, _ = rank_pca(np.asarray(x, float))
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


def rank_pca(
    x: Float[np.ndarray, "n dim_x"], others: Float[np.ndarray, "m dim_x"] | None = None
) -> tuple[Float[np.ndarray, "n k"], Float[np.ndarray, "m k"]]:
    """Return the leading principal coordinates of x, of unit variance, and those of other vectors likewise.

    Ranks are taken first, so that no outlier rules.
    """
    both = x if others is None else np.concatenate([x, others])
    scores = 2 * (rankdata(both, axis=0) - 1) / max(len(both) - 1, 1) - 1
    scores = scores - scores[: len(x)].mean(axis=0)
    _, _, directions = np.linalg.svd(scores[: len(x)], full_matrices=False)
    coordinates = scores @ directions[:COMPONENTS].T
    coordinates = coordinates / (coordinates[: len(x)].std(axis=0) + 1e-12)
    return coordinates[: len(x)], coordinates[len(x) :]


def require(calibration: Calibration) -> None:
    """Refuse sets that are too small for a test."""
    if len(calibration) < FEWEST_NUMBERS:
        raise InputError(f"expected at least {FEWEST_NUMBERS} simulated observations; got {len(calibration)}; try 300.")


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


def advice_for(p_value: float, calibration: Calibration, what: str) -> str:
    """Return the sentence for a calibration check; `what` says what is wrong, if something is."""
    if verdict_of(p_value) != "good":
        return f"{what} (p = {short(p_value)}); fit again with more simulations, and check once more."
    if calibration.effective < FEWEST_EFFECTIVE:
        return (
            f"No deviation was seen, but with {calibration.effective:.0f} effective draws per posterior this says "
            "little: there are too many parameters for weighted draws."
        )
    if calibration.in_sample:
        return (
            "No deviation was seen on the simulations of the fit itself, which flatters it; "
            "for a real test: unle check DIR --simulations 300."
        )
    return "Nothing to see: as calibrated as this many simulations can tell."
