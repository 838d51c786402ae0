"""How unusual is a number among others?  A p-value that also speaks beyond the largest of them.

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

import numpy as np
from jaxtyping import Float
from scipy.stats import pearson3, skew

ENOUGH = 10  # values beyond the observed one, for counting to be exact enough
SMALLEST = 1e-6  # no continued tail is believed further than this


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
