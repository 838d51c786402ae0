r"""P-values: of numbers that should be uniform, and of a number among simulated ones.

**Are numbers in [0, 1] uniform?**  The question to which calibration comes down, with the direction of a failure.

Neyman's smooth test writes the deviation from uniformity in Legendre polynomials P_1 ... P_4, orthonormal on [0, 1],

    b_k = n^(-1/2) sum_i P_k(u_i),      T = b_1^2 + ... + b_4^2,

and T is chi-square with four degrees of freedom if the u are uniform.  The first two describe the usual failures:
b_1 > 0 says that the truth lies above the posterior (a shift), b_2 > 0 that ranks crowd at both ends (a posterior that
is too narrow), b_2 < 0 that they crowd in the middle (too wide).  A Kolmogorov test, which looks at the largest gap of
the distribution function, sees shifts as well but is nearly blind to widths.

Reference: Neyman, "Smooth test for goodness of fit", 1937; Rayner, Thas and Best, 2009.

**How unusual is a number among others?**  A p-value that also speaks beyond the largest of them.

Among n simulated values the smallest p-value that counting can give is 1 / (n + 1).  Where fewer than ten lie beyond
the observed one, the tail is continued by a Pearson III curve, a gamma law with the same mean, variance and skewness.
That is what sums of squares look like, and what the statistics here are.

Where the observed number is a mean over posterior draws, its distribution is not the null's but a narrower one.  If
every single term has the null's distribution, then E f(mean) <= E f(term) for convex f (Jensen), so that for any c < t

    P(mean >= t) <= E (mean - c)+ / (t - c) <= E (term - c)+ / (t - c);

with the best c this is at most e P(term >= t) if the null's tail falls like that of a gamma law, or faster.  Hence the
factor e: a p-value that is too large rather than too small.

References: Knijnenburg et al., "Fewer permutations, more accurate p-values", 2009 (with another curve); Vovk and Wang,
"Combining p-values via averaging", 2020, where the same factor comes from the same argument.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.stats import binom, chi2, norm, pearson3, skew

ORDER = 4
FEWEST_NUMBERS = 20  # numbers; with fewer the chi-square law is not accurate
CLEAR = 2.5  # standard errors from which a direction is named
SHIFT_RATIO = 0.6  # of b_1 to b_2, from which it is a shift rather than a width
MATERIAL = 0.05  # gap of the distribution function; smaller ones are ignored, however significant
BAND_DRAWS = 1000  # simulations behind a simultaneous band
ENOUGH = 10  # values beyond the observed one, for counting to be exact enough
SMALLEST = 1e-6  # no continued tail is believed further than this


class Uniformity(NamedTuple):
    """What the test found."""

    p_value: float  # of uniformity
    coefficients: Float[np.ndarray, " order"]  # b_1 ... b_4, each standard normal if uniform.
    gap: float  # largest distance between the distribution function and the diagonal

    @property
    def direction(self) -> str:
        """How posteriors deviate: "low" or "high" (below or above the truth), "narrow", "wide", or "" if not clear."""
        shift, width = self.coefficients[:2]
        if max(abs(shift), abs(width)) < CLEAR:
            return ""
        # Numbers that all crowd at one end have a larger b_2 than b_1, by sqrt(5 / 3): still a shift.
        if abs(shift) > SHIFT_RATIO * abs(width) and abs(shift) >= CLEAR:
            return "low" if shift > 0 else "high"
        return "narrow" if width > 0 else "wide"


def uniformity(u: Float[np.ndarray, " n"], *, variance: float = 1.0) -> Uniformity:
    """Test numbers for uniformity on [0, 1].

    Args:
        u: the numbers.
        variance: of each b_k under uniformity; 1 for independent numbers, more where they have an error in common.

    Example:
        >>> import numpy as np
        >>> u = np.random.default_rng(0).uniform(size=300)
        >>> bool(uniformity(u).p_value > 0.01), uniformity(0.5 + 0.5 * u).direction, uniformity(0.01 * u).direction
        (True, 'low', 'high')
    """
    u = np.asarray(u, dtype=float)
    z = 2 * u - 1
    n = len(u)
    polynomials = [np.polynomial.Legendre.basis(k)(z) * np.sqrt(2 * k + 1) for k in range(1, ORDER + 1)]
    coefficients = np.array([p.sum() for p in polynomials]) / np.sqrt(n * variance)
    ordered = np.sort(u)
    above = np.max(np.arange(1, n + 1) / n - ordered)
    below = np.max(ordered - np.arange(n) / n)
    return Uniformity(float(chi2.sf(coefficients @ coefficients, ORDER)), coefficients, float(max(above, below)))


class Width(NamedTuple):
    """What the test of widths found."""

    p_value: float
    direction: str  # "wide" or "narrow", as the posteriors would be


def width(u: Float[np.ndarray, " n"], *, variance: float = 1.0) -> Width:
    """Test the levels of posteriors that may all be too wide, or all too narrow, by the same factor.

    The normal quantiles z of uniform levels are standard normal, so that

        n mean(z^2)  is chi-square with n degrees of freedom;

    it is smaller if posteriors are too wide.  For that failure this test has far more power than Neyman's.

    Args:
        u: the levels.
        variance: as for `uniformity`; the degrees of freedom are n / variance.

    Example:
        >>> import numpy as np
        >>> from scipy.stats import norm
        >>> z = np.random.default_rng(0).normal(size=300)
        >>> width(norm.cdf(z)).p_value > 0.01, width(norm.cdf(0.8 * z)).p_value < 0.001
        (True, True)

    Reference: Cook, Gelman and Rubin, "Validation of software for Bayesian models using posterior quantiles", 2006.
    """
    z = norm.ppf(np.clip(u, SMALLEST, 1 - SMALLEST))
    freedom = len(z) / variance
    total = freedom * float(np.mean(z**2))
    p_value = float(min(1.0, 2 * min(chi2.cdf(total, freedom), chi2.sf(total, freedom))))
    return Width(p_value, "wide" if total < freedom else "narrow")


def ecdf_band(n: int, points: Float[np.ndarray, " k"], *, level: float = 0.95, seed: int = 0):
    """Return bounds in which the distribution function of n uniform numbers stays with probability `level`, as a whole.

    Pointwise it is binomial; the pointwise level is lowered until the whole curve stays inside as often as asked.

    Reference: Sailynoja, Burkner and Vehtari, "Graphical test for discrete uniformity", 2022.
    """
    rng = np.random.default_rng(seed)
    u = np.sort(rng.uniform(size=(BAND_DRAWS, n)), axis=1)
    counts = np.stack([np.searchsorted(row, points, side="right") for row in u])
    tails = np.minimum(binom.cdf(counts, n, points), binom.sf(counts - 1, n, points))
    pointwise = np.quantile(tails.min(axis=1), 1 - level)  # of one tail
    return binom.ppf(pointwise, n, points) / n, binom.isf(pointwise, n, points) / n


def tail_probability(null: Float[np.ndarray, " n"], observed: float) -> float:
    """Return the probability of a value at least as large as the observed one.

    Args:
        null: values under the hypothesis.
        observed: the value in question.

    Example:
        >>> import numpy as np
        >>> null = np.random.default_rng(0).chisquare(3, size=200)
        >>> bool(tail_probability(null, 2.0) > 0.3), bool(tail_probability(null, 40.0) < 1e-4)
        (True, True)
    """
    null = np.asarray(null, dtype=float)
    beyond = int(np.sum(null >= observed))
    counted = (1 + beyond) / (len(null) + 1)
    spread = null.std()
    if beyond >= ENOUGH or not np.isfinite(observed):
        return counted if np.isfinite(observed) else SMALLEST
    if spread == 0:
        return counted if beyond else SMALLEST
    bend = float(np.clip(skew(null), 0.0, 4.0))
    fitted = float(pearson3.sf((observed - null.mean()) / spread, bend))
    return float(np.clip(fitted, SMALLEST, 2 * (ENOUGH + 1) / (len(null) + 1)))


def tail_probability_of_mean(null: Float[np.ndarray, " n"], mean: float) -> float:
    """Return a bound of the probability of so large a mean of terms, each of which has the null's distribution.

    The terms may depend on each other in any way, as those of one observation at many posterior draws do.
    """
    return min(1.0, math.e * tail_probability(null, mean))
