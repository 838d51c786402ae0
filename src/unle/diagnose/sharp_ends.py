r"""Does the noise of the data end sharply: a density that stops, rather than one that fades?

Simulate many times at one and the same theta.  Let d_i be the distances of the k largest values of a coordinate from
the largest of all, in units of the distance of the next one inwards.  Where the density behaves like d^(a - 1) near its
end, the mean of the d_i tells a: about 1/2 for a jump (a = 1: uniform noise, exponential noise at its lower end), 2/3
for a density that falls to zero linearly (a = 2: gamma noise of shape 2), more for tails of any kind.  It depends on
neither place nor scale.  So the null hypothesis is the power law with a = 1.8, and its distribution is simulated.

A second peak that holds just the k largest values would look like a jump.  Three depths are looked at, the outermost
5, 10 and 20 % of the values, and the largest of the three p-values counts.

An end harms a posterior only if it moves with theta: the learned density rounds it off, and gives weight to
parameters under which the data are impossible.  A wall that stays where it is cuts off all parameters alike.  So an end
counts if its place differs between draws of the posterior: the outermost and the third outermost of four, since a draw
at which nothing reaches a wall says nothing about where it is.

With 4 draws and 1,000 simulations at each, at level 0.01 for one end: uniform, exponential and half-normal noise is
found in 99 of 100 cases or more, gamma noise of shape 2 and log-normal noise in 0.3 %, and normal, t, Laplace, Cauchy,
logistic, Gumbel, triangular and beta(2, 2) noise and mixtures of two normals never in 200 trials.  What it cannot see:
an end of a combination of several coordinates, an end blurred by other noise of a fiftieth of the width or more, and
a truncation in the tail, two standard deviations out.  Data on a lattice have no density, and are left out.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from unle.diagnose.record import DOUBTFUL_BELOW
from unle.diagnose.tail_pvalue import tail_probability

DEPTHS = 0.05, 0.1, 0.2  # shares of the values, the outermost, that are looked at
FADING = 1.8  # exponent a of the null hypothesis; 2 would call gamma noise of shape 2 sharp in 4 % of cases
NULLS = 2000  # simulated values of the statistic under the null hypothesis
DISTINCT = 0.9  # share of the values that must differ from each other: ties are no density
MOVED = 0.1  # of the outermost fifth's width: how far an end must move between draws to count
SIMULATIONS = 1000  # at each draw
FEWEST_SIMULATIONS = 300  # at each draw, below which hardly any end would be found
DRAWS = 4  # of the posterior


class SharpEnd(NamedTuple):
    """An end of the noise of one coordinate.

    Attributes:
        coordinate: number of the data coordinate.
        upper: whether values end upwards.
        p_value: of a density that fades, not corrected for the number of ends.
        places: the extreme value at every draw.
    """

    coordinate: int
    upper: bool
    p_value: float
    places: Float[np.ndarray, " draw"]


def sharp_ends(w: Float[np.ndarray, "draw n data"]) -> list[SharpEnd]:
    """Return the sharp ends that move with theta.

    Args:
        w: simulations in the coordinates of the fit, n at each of three draws of theta or more.

    Example:
        >>> import numpy as np
        >>> rng, theta = np.random.default_rng(0), np.array([0.0, 0.3, 0.8, 1.1])[:, None, None]
        >>> [end.upper for end in sharp_ends(theta + rng.uniform(size=(4, 1000, 1)))]
        [False, True]
        >>> sharp_ends(theta + rng.normal(size=(4, 1000, 1)))
        []
    """
    ends = [end for j in range(w.shape[2]) for end in _ends_of(w[:, :, j], j)]
    return [end for end in ends if end.p_value * 2 * w.shape[2] < DOUBTFUL_BELOW]


def _ends_of(values: Float[np.ndarray, "draw n"], coordinate: int) -> list[SharpEnd]:
    ordered = np.sort(values, axis=1)
    if np.mean(np.diff(ordered, axis=1) > 0) < DISTINCT:
        return []
    found = []
    for upper in (False, True):
        inwards = ordered[:, ::-1] if upper else ordered
        distances = np.abs(inwards - inwards[:, :1])
        places, width = inwards[:, 0], distances[:, int(DEPTHS[-1] * values.shape[1])].mean()
        outwards = np.sort(places)[::-1] if upper else np.sort(places)
        if abs(outwards[0] - outwards[2]) > MOVED * width:
            p_value = max(_p_value(distances, int(depth * values.shape[1])) for depth in DEPTHS)
            found.append(SharpEnd(coordinate, upper, p_value, places))
    return found


def _p_value(distances: Float[np.ndarray, "draw n"], k: int) -> float:
    """Return the probability of a mean distance as small, if the density fades."""
    mean = float(np.mean(distances[:, 1:k] / np.maximum(distances[:, k : k + 1], 1e-300)))
    return tail_probability(-_null_means(len(distances), k), -mean)


@cache
def _null_means(draws: int, k: int) -> Float[np.ndarray, " null"]:
    """Return the mean of k - 1 distances at each of some draws, for densities d^(FADING - 1)."""
    distances = np.sort(np.random.default_rng([draws, k]).uniform(size=(NULLS, draws, k)) ** (1 / FADING), axis=2)
    nearest = distances[..., :1]
    return np.mean((distances[..., 1:] - nearest) / (1 - nearest), axis=(1, 2))
