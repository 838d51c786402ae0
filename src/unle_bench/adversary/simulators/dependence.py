"""Readings that look alike and are not independent, and readings that are."""

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

from unle_bench.adversary.exact import ByFactors
from unle_bench.adversary.priors import cube
from unle_bench.adversary.simulator import Adversary
from unle_bench.adversary.simulators.densities import log_normal_density, log_student_density

READINGS = 8
MEAN_LOG_SCALE = -1.0
NODES = np.linspace(-7.0, 7.0, 141)  # of the integral over the scale, in its standard deviations
COMMON, OWN = 0.7, 0.2  # noise that all readings share, and that of each
FEW_READINGS, CAUCHY_SCALE = 5, 0.3


def one_scale(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n readings"]:
    """Draw the size of the noise once for all eight readings."""
    scale = np.exp(MEAN_LOG_SCALE + rng.normal(size=(len(theta), 1)))
    return theta + scale * rng.normal(size=(len(theta), READINGS))


def log_one_scale(t: Float[np.ndarray, " n"], i: int, x: Float[np.ndarray, " readings"]) -> Float[np.ndarray, " n"]:
    """Return the log of the integral over the scale."""
    log_scales = MEAN_LOG_SCALE + NODES
    squares = np.sum((x - t[:, None]) ** 2, axis=1)
    given = -0.5 * squares[:, None] * np.exp(-2 * log_scales) - READINGS * log_scales
    return np.asarray(logsumexp(given - 0.5 * NODES**2, axis=1))


def one_shift(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n readings"]:
    """Shift all eight readings together."""
    n = len(theta)
    return theta + COMMON * rng.normal(size=(n, 1)) + OWN * rng.normal(size=(n, READINGS))


SIMULATORS: tuple[Adversary, ...] = (
    Adversary(
        "one_scale",
        "Eight readings, exchangeable but dependent through the size of their noise.",
        cube(1),
        one_scale,
        ByFactors(log_one_scale),
    ),
    Adversary(
        "one_shift",
        "Eight readings, exchangeable but dependent through a common shift.",
        cube(1),
        one_shift,
        # the mean of the readings is sufficient
        ByFactors(lambda t, i, x: log_normal_density(x.mean() - t, np.sqrt(COMMON**2 + OWN**2 / READINGS))),
    ),
    Adversary(
        "cauchy_readings",
        "Five readings, independent, with tails: repetition and outliers at once.",
        cube(1),
        lambda theta, rng: theta + CAUCHY_SCALE * rng.standard_cauchy(size=(len(theta), FEW_READINGS)),
        ByFactors(lambda t, i, x: log_student_density(x - t[:, None], CAUCHY_SCALE, 1.0).sum(axis=1)),
    ),
)
