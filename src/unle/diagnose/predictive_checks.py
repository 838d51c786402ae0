r"""Do simulations at posterior draws look like the observation?  Two checks.

*predictive.*  Simulate at draws of theta and ask where x_o lies among these replicas: coordinate by coordinate, by its
quantile, and all coordinates together, by the energy score, compared with the score of each replica among the others.
A failure says that the posterior is in the wrong place, or that the simulator cannot produce such data at all.

A posterior that is too wide also passes this test: its replicas are everywhere, x_o among them.  Two
replicas x_j, x_j' at each draw theta_j tell.  If the posterior is right, then theta_j could have been the parameter
behind x_o: (theta_j, x_o) has the distribution of (theta_j, x_j), on average over x_o, and

    |x_o - x_j'|    is distributed like    |x_j - x_j'|.

A posterior that is too wide, or in the wrong place, has draws whose simulations are far from x_o, further than from
each other.  The mean of the left-hand side over the draws is the test; it varies less than its terms do, which
`tail_probability_of_mean` takes into account.  Comparing x_o with the scatter of all replicas would not do.  With as
many data as parameters the posterior's mean follows x_o, so that x_o lies in the middle of its replicas under the
*right* posterior, always.  The test sees a width that is wrong by a factor of three or so where data and parameters are
few.  Noise in many coordinates hides more.

*tail_rank.*  For the same reason

    A = mean_j log q(x_o | theta_j)

is nothing special among the log q(x_j | theta_j) if likelihood and posterior are right.  A small rank says that the
observation is lost: the posterior went to a place where the learned likelihood, such as it is there, does not expect
data like x_o, or it is much wider than x_o allows, so that most of its draws do not fit.  A normaliser Z(theta) that
was left out is the same in both, and does no harm.  It does not see a wrong shape.

Neither says much about a posterior that is too narrow: these are checks of the whole chain from x_o to simulator, not
of calibration.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from unle.diagnose.distances import energy_scores
from unle.diagnose.p_values import tail_probability, tail_probability_of_mean
from unle.diagnose.record import Check, CheckKind, bonferroni, verdict_of
from unle.errors import InputError

PREDICTIVE = CheckKind(
    "predictive",
    "Posterior predictive check",
    "Do simulations at the inferred parameters look like the observation?",
)
TAIL_RANK = CheckKind(
    "tail_rank",
    "Likelihood of x_o among that of its replicas",
    "Does the learned likelihood fit the observation as well as simulations at the inferred parameters?",
)
FEWEST_REPLICAS = 50  # replicas
FEWEST_PAIRS = 25  # of replicas, needed to estimate the tail of their distances


class Replicas(NamedTuple):
    """Simulations at posterior draws: two at each, or more draws and one at each."""

    theta: Float[np.ndarray, "n dim"]  # the draws
    index: Int[np.ndarray, " n"]  # their places among all draws, chains one after another
    x: Float[np.ndarray, "n k rows dim_x"]  # k = 1 or 2 simulations; as many rows each as the observation has
    valid: Bool[np.ndarray, "n k"]  # which of them did not fail


def predictive(replicas: Any, x_o: Any, *, pairs: Replicas | None = None) -> Check:
    """Compare the observation with simulations at posterior draws.

    Args:
        replicas: for every draw as many simulated rows as the observation has, (n, rows, dim_x).
        x_o: the observation, (rows, dim_x), or one row.
        pairs: replicas of which two belong to one draw, to test the width of the posterior.

    Returns:
        A `Check`; arrays `replicas` (the first row of each), `x_o` and `quantiles`, the place of x_o's mean row.
    """
    replicas, x_o = np.asarray(replicas, float), np.atleast_2d(np.asarray(x_o, float))
    if replicas.ndim != 3 or replicas.shape[1:] != x_o.shape or len(replicas) < FEWEST_REPLICAS:
        raise InputError(f"expected at least {FEWEST_REPLICAS} replicas of shape {x_o.shape}; got {replicas.shape}.")
    centre, spread = _scale(replicas.reshape(-1, x_o.shape[1]))
    scaled, observed = (replicas - centre) / spread, (x_o - centre) / spread
    # i.i.d. rows are compared by their mean in every coordinate, and by their joint score.
    means, mean = scaled.mean(axis=1), observed.mean(axis=0)
    middle = np.median(means, axis=0)
    tails = [tail_probability(abs(means[:, j] - middle[j]), abs(mean[j] - middle[j])) for j in range(means.shape[1])]
    flat = scaled.reshape(len(scaled), -1)
    score, null = energy_scores(flat, observed.reshape(1, -1))
    p_joint = tail_probability(null, float(score[0]))
    wide = None if pairs is None else distance_ratio(pairs, x_o)
    p_place = bonferroni([bonferroni(tails), p_joint])
    p_value = p_place if wide is None else bonferroni([p_place, wide.p_value])
    verdict = verdict_of(p_value)
    worst = int(np.argmin(tails))
    place = f"x_{worst + 1}" if tails[worst] * len(tails) <= p_joint else "the combination of its coordinates"
    if verdict == "good":
        advice = "The simulations reproduce x_o."
    elif wide is not None and wide.p_value < p_place:
        advice = (
            f"The posterior is too wide, or mostly in the wrong place: simulations at its draws are {wide.ratio:.2g} "
            "times as far from x_o as from each other at one and the same draw; fit again with more simulations."
        )
    else:
        advice = f"x_o is unlike its own replicas, most of all in {place}: can the simulator produce such data at all?"
    numbers = {
        "p": p_value,
        "energy_score": float(score[0]),
        "expected_score": float(null.mean()),
        "smallest_tail": float(min(tails)),
        "replicas": len(replicas),
    }
    if wide is not None:
        numbers |= {"distance_ratio": wide.ratio, "p_of_distance": wide.p_value}
    quantiles = np.mean(means < mean, axis=0)
    arrays = {"replicas": replicas[:500, 0], "x_o": x_o, "quantiles": quantiles, "scores": null}
    return PREDICTIVE.result(verdict, numbers, advice, arrays)


class DistanceRatio(NamedTuple):
    """How far x_o is from simulations at the posterior's draws."""

    # mean distance from x_o to the simulations, divided by the mean distance between two simulations at the same draw;
    # about 1 for a correct posterior
    ratio: float
    p_value: float  # probability of a ratio this large under a correct posterior, or an upper bound


def distance_ratio(pairs: Replicas, x_o: Float[np.ndarray, "rows dim_x"]) -> DistanceRatio | None:
    """Compare distances from x_o with distances within pairs; several rows of x_o by their mean.

    There is no finding, None, where too few pairs are valid, or where the simulator has no noise.
    """
    both = pairs.valid.all(axis=1)
    if both.sum() < FEWEST_PAIRS:
        return None
    means = pairs.x[both].mean(axis=2)
    differences = means[:, 0] - means[:, 1]
    # In units of the noise; a coordinate without noise has no unit, and is left out.
    noise = np.quantile(np.abs(differences), 0.68, axis=0)
    noise = np.where(noise > 0, noise, differences.std(axis=0))
    noisy = noise > 0
    if not noisy.any():
        return None
    noise = noise[noisy]
    apart = np.linalg.norm(differences[:, noisy] / noise, axis=1)
    observed = np.mean(x_o, axis=0)[noisy]
    # Both replicas serve as x_j': the mean is the better for it.
    away = np.linalg.norm((means[:, :, noisy] - observed) / noise, axis=2)
    return DistanceRatio(float(away.mean() / apart.mean()), tail_probability_of_mean(apart, float(away.mean())))


def tail_rank(of_x_o: Float[np.ndarray, " n"], of_replicas: Float[np.ndarray, " m"]) -> Check:
    """Compare log-likelihoods.

    Args:
        of_x_o: log q(x_o | theta_j) at posterior draws.
        of_replicas: log q(x_j | theta_j) of a simulation at each.

    Returns:
        A `Check`; arrays `of_replicas` and `of_x_o`, the latter as its mean.
    """
    of_replicas = np.asarray(of_replicas, float)
    of_replicas = np.where(np.isnan(of_replicas), -np.inf, of_replicas)
    known = of_replicas[np.isfinite(of_replicas)]
    if len(known) < FEWEST_PAIRS:
        raise InputError(f"expected at least {FEWEST_PAIRS} finite log-likelihoods of replicas; got {len(known)}.")
    mean = float(np.mean(of_x_o))
    p_value = tail_probability_of_mean(-known, -mean if np.isfinite(mean) else np.inf)
    verdict = verdict_of(p_value)
    advice = (
        "x_o is as likely as simulations at the inferred parameters."
        if verdict == "good"
        else "x_o is lost: the learned likelihood expects other data at the inferred parameters, or most of them do "
        "not fit x_o; simulate more, near x_o if that is affordable (--method sunle)."
    )
    numbers = {
        "p": p_value,
        "rank": float(np.mean(of_replicas <= mean)),
        "log_likelihood": mean,
        "of_replicas": float(np.median(known)),
        "replicas": len(of_replicas),
    }
    arrays = {"of_replicas": known, "of_x_o": np.array([mean])}
    return TAIL_RANK.result(verdict, numbers, advice, arrays)


def _scale(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return centre and spread of every coordinate, by quantiles: replicas may have wild tails."""
    low, centre, high = np.quantile(values, [0.16, 0.5, 0.84], axis=0)
    spread = (high - low) / 2
    return centre, np.where(spread > 0, spread, np.maximum(values.std(axis=0), 1e-12))
