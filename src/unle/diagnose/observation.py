"""Is the observation like anything that was simulated, or an outlier?

No method can know a likelihood where nothing was simulated.  In the coordinates of the fit (transformed and
standardised), the distance from x_o to its k-th nearest simulation is compared with the same distance of every
simulation from the others.  An observation further out than nearly all of them was not in the range of prior and
simulator: a mistake in units, a misspecified simulator, too narrow a prior, or bad luck.  Errors of the model among the
simulations are not seen.

And how far out is it?  Where fewer than one simulation in fifty lies, the model has learned from few, and checks that
average over all simulations say little.  Simulations are put in order by their most extreme coordinate, each
coordinate's extremes being counted in ranks; an observation in the outermost 2 % is doubtful, even if right.
"""

from typing import Any

import numpy as np
from jaxtyping import Float

from unle.diagnose.p_values import tail_probability
from unle.diagnose.record import Check, CheckKind, bonferroni, short, verdict_of
from unle.errors import InputError

OUTLIER = CheckKind(
    "outlier",
    "x_o among the simulations",
    "Is the observation like anything that was simulated?",
)
NEIGHBOUR = 5
MOST = 5000  # simulations looked at
OUTER = 0.02  # share of the simulations, those farthest out, where a model has learned from few


def outlier(simulated: Any, x_o: Any) -> Check:
    """Compare distances to the nearest simulations.

    Args:
        simulated: training data, in standardised coordinates, (n, dim).
        x_o: the observation, in the same, (rows, dim), or one row.

    Returns:
        A `Check`; arrays `distances` of simulations to their neighbours, and `observed` of the rows.
    """
    from sklearn.neighbors import NearestNeighbors

    simulated, x_o = np.asarray(simulated, float)[:MOST], np.atleast_2d(np.asarray(x_o, float))
    if len(simulated) <= NEIGHBOUR + 1 or simulated.shape[1] != x_o.shape[1]:
        raise InputError(f"expected simulations (n, d) and rows (r, d); got {simulated.shape} and {x_o.shape}.")
    outer = min(_farther_out(simulated, row) for row in x_o)
    # Correlated coordinates are whitened: a point off the correlation is outside, though inside in every coordinate.
    mean, root = simulated.mean(axis=0), _inverse_root(np.cov(simulated.T).reshape(simulated.shape[1], -1))
    simulated, x_o = (simulated - mean) @ root, (x_o - mean) @ root
    near = NearestNeighbors(n_neighbors=NEIGHBOUR + 1).fit(simulated)
    among = near.kneighbors(simulated)[0][:, NEIGHBOUR]  # the nearest of all is the point itself
    distances = near.kneighbors(x_o)[0][:, NEIGHBOUR - 1]
    # Of counts many are equal: logs of distances of zero would stretch the scale until nothing is far.
    floor = 0.05 * np.quantile(among, 0.9) + 1e-9 * np.max(among) + 1e-30
    logs = np.log(among + floor)
    p_value = bonferroni([tail_probability(logs, float(np.log(d + floor))) for d in distances])
    verdict = verdict_of(p_value)
    advice = "The observation lies among the simulations."
    if verdict == "bad":
        advice = (
            f"x_o lies {short(distances.max())} standard deviations from its nearest simulations, which lie "
            f"{short(np.median(among))} from one another: check its units and the order of its entries, then widen the "
            "prior, or doubt the simulator; do not use the posterior before."
        )
    elif verdict == "doubtful":
        advice = (
            "The observation lies at the edge of the simulations or beyond: check its units, then widen the prior, "
            "or doubt the simulator."
        )
    elif outer < OUTER:
        verdict = "doubtful"
        advice = (
            f"Only {outer:.1%} of the simulations lie as far out as the observation, so the model has learned from few "
            "there, and the checks that average over all simulations say little: try SUNLE, which simulates around it."
        )
    numbers = {
        "p": p_value,
        "distance": float(distances.max()),
        "typical_distance": float(np.median(among)),
        "largest_distance": float(among.max()),
        "farther_out": outer,
    }
    return OUTLIER.result(verdict, numbers, advice, {"distances": among, "observed": distances})


def _inverse_root(covariance: Float[np.ndarray, "d d"]) -> Float[np.ndarray, "d d"]:
    values, vectors = np.linalg.eigh(covariance)
    return vectors / np.sqrt(np.maximum(values, 1e-3 * values.max()))  # thin directions are not blown up to noise


def _farther_out(simulated: Float[np.ndarray, "n d"], row: Float[np.ndarray, " d"]) -> float:
    """Return the share of simulations with a coordinate as extreme as the most extreme one of a row."""
    ordered = np.sort(simulated, axis=0)

    def most_extreme(points):
        tails = [
            np.minimum(np.searchsorted(column, values, side="right"), n - np.searchsorted(column, values, side="left"))
            for column, values in zip(ordered.T, points.T, strict=True)
        ]
        return np.min(tails, axis=0) / n

    n = len(simulated)
    return float(np.mean(most_extreme(simulated) <= most_extreme(row[None])[0]))
