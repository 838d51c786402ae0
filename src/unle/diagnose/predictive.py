"""Posterior predictive check: do simulations at posterior draws look like the observation?

Simulate at draws of theta and ask where x_o lies among these replicas: coordinate by coordinate, by its quantile, and
all coordinates together, by the energy score, compared with the score of each replica among the others.  A failure says
that the posterior is in the wrong place, or that the simulator cannot produce such data at all.

x_o can also lie too well inside: a posterior much wider than it should be has replicas everywhere, x_o among them.
Where there are two replicas at each draw, `twins` has a test for that.

Success says little about a posterior that is too narrow: this is a check of the whole chain from x_o to simulator, not
of calibration.
"""

from typing import Any

import numpy as np

from unle.diagnose.energy import energy_scores
from unle.diagnose.record import Check, bonferroni, verdict_of
from unle.diagnose.tails import tail_probability
from unle.diagnose.twins import Twins, width
from unle.errors import InputError

TITLE = "Posterior predictive check"
QUESTION = "Do simulations at the inferred parameters look like the observation?"
FEWEST = 50


def predictive(replicas: Any, x_o: Any, *, twins: Twins | None = None) -> Check:
    """Compare the observation with simulations at posterior draws.

    Args:
        replicas: for every draw as many simulated rows as the observation has, (n, rows, dim_x).
        x_o: the observation, (rows, dim_x), or one row.
        twins: replicas of which two belong to one draw, for a word on the width of the posterior.

    Returns:
        A `Check`; arrays `replicas` (the first row of each), `x_o` and `quantiles`, the place of x_o's mean row.
    """
    replicas, x_o = np.asarray(replicas, float), np.atleast_2d(np.asarray(x_o, float))
    if replicas.ndim != 3 or replicas.shape[1:] != x_o.shape or len(replicas) < FEWEST:
        raise InputError(f"expected at least {FEWEST} replicas of shape {x_o.shape}; got {replicas.shape}.")
    centre, spread = _scale(replicas.reshape(-1, x_o.shape[1]))
    scaled, observed = (replicas - centre) / spread, (x_o - centre) / spread
    # i.i.d. rows are compared by their mean in every coordinate, and by their joint score.
    means, mean = scaled.mean(axis=1), observed.mean(axis=0)
    middle = np.median(means, axis=0)
    tails = [tail_probability(abs(means[:, j] - middle[j]), abs(mean[j] - middle[j])) for j in range(means.shape[1])]
    flat = scaled.reshape(len(scaled), -1)
    score, null = energy_scores(flat, observed.reshape(1, -1))
    p_joint = tail_probability(null, float(score[0]))
    wide = None if twins is None else width(twins, x_o)
    p_place = bonferroni([bonferroni(tails), p_joint])
    p_value = p_place if wide is None else bonferroni([p_place, wide.p_value])
    verdict = verdict_of(p_value)
    worst = int(np.argmin(tails))
    where = f"x_{worst + 1}" if tails[worst] * len(tails) <= p_joint else "the combination of its coordinates"
    if verdict == "good":
        advice = "The simulations reproduce x_o."
    elif wide is not None and wide.p_value < p_place:
        advice = (
            f"The posterior is too wide, or mostly in the wrong place: simulations at its draws are {wide.ratio:.2g} "
            "times as far from x_o as from each other at one and the same draw; fit again with more simulations."
        )
    else:
        advice = f"x_o is unlike its own replicas, most of all in {where}: can the simulator produce such data at all?"
    return Check(
        "predictive",
        TITLE,
        QUESTION,
        verdict,
        {
            "p": p_value,
            "energy_score": float(score[0]),
            "expected_score": float(null.mean()),
            "smallest_tail": float(min(tails)),
            "replicas": len(replicas),
        }
        | ({} if wide is None else {"distance_ratio": wide.ratio, "p_of_distance": wide.p_value}),
        advice,
        {
            "replicas": replicas[:500, 0],
            "x_o": x_o,
            "quantiles": np.mean(means < mean, axis=0),
            "scores": null,
        },
    )


def _scale(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return centre and spread of every coordinate, by quantiles: replicas may have wild tails."""
    low, centre, high = np.quantile(values, [0.16, 0.5, 0.84], axis=0)
    spread = (high - low) / 2
    return centre, np.where(spread > 0, spread, np.maximum(values.std(axis=0), 1e-12))
