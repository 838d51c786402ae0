r"""Is the posterior wider than one observation allows?  Two simulations at every draw of it tell.

Let theta_j be posterior draws and x_j, x_j' two simulations at each.  If the posterior is right, then theta_j could
have been the parameter behind x_o: (theta_j, x_o) has the distribution of (theta_j, x_j), on average over x_o, and

    |x_o - x_j'|    is distributed like    |x_j - x_j'|.

A posterior that is too wide, or in the wrong place, has draws whose simulations are far from x_o, further than from
their twins.  The mean of the left-hand side over the draws is the test; it varies less than its terms do, which
`tail_probability_of_mean` takes into account.

Comparing x_o with the scatter of all replicas would not do.  With as many data as parameters the posterior's mean
follows x_o, so that x_o lies in the middle of its replicas under the *right* posterior, always.

It sees a width that is wrong by a factor of three or so where data and parameters are few.  Noise in many coordinates
hides more.  It says nothing where the simulator is noisy but the posterior too narrow.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from unle.diagnose.tails import tail_probability_of_mean

FEWEST = 25  # pairs of twins for a word about the tail of their distances


class Twins(NamedTuple):
    """Two simulations at each of some posterior draws.

    Attributes:
        theta: the draws.
        index: their places among all draws, chains one after another.
        x: the simulations; as many rows each as the observation has.
        valid: which of them did not fail.
    """

    theta: Float[np.ndarray, "n dim"]
    index: Int[np.ndarray, " n"]
    x: Float[np.ndarray, "n 2 rows dim_x"]
    valid: Bool[np.ndarray, "n 2"]


class Width(NamedTuple):
    """How far x_o is from simulations at the posterior's draws.

    Attributes:
        ratio: its mean distance from them, over the mean distance of twins; 1 for a right posterior.
        p_value: of so large a distance, or a bound of it.
    """

    ratio: float
    p_value: float


def width(twins: Twins, x_o: Float[np.ndarray, "rows dim_x"]) -> Width | None:
    """Compare distances from x_o with distances between twins.

    Args:
        twins: of posterior draws.
        x_o: the observation; several rows are compared by their mean.

    Returns:
        The finding; None where too few twins are valid, or where the simulator has no noise.
    """
    both = twins.valid.all(axis=1)
    if both.sum() < FEWEST:
        return None
    pairs = twins.x[both].mean(axis=2)
    differences = pairs[:, 0] - pairs[:, 1]
    # In units of the noise; a coordinate without noise has no unit, and is left out.
    noise = np.quantile(np.abs(differences), 0.68, axis=0)
    noise = np.where(noise > 0, noise, differences.std(axis=0))
    noisy = noise > 0
    if not noisy.any():
        return None
    noise = noise[noisy]
    apart = np.linalg.norm(differences[:, noisy] / noise, axis=1)
    observed = np.mean(x_o, axis=0)[noisy]
    # Both twins serve as x_j': the mean is the better for it.
    away = np.linalg.norm((pairs[:, :, noisy] - observed) / noise, axis=2)
    return Width(float(away.mean() / apart.mean()), tail_probability_of_mean(apart, float(away.mean())))
