"""Units that differ by twelve orders of magnitude, data that spread over ten, and garbage."""

import numpy as np
from jaxtyping import Float

from unle_bench.adversary.exact import ByFactors, OnPlane
from unle_bench.adversary.priors import Box, cube
from unle_bench.adversary.simulator import Adversary
from unle_bench.adversary.simulators.densities import log_mixture, log_normal_density

NOISE = 0.3
UNITS = np.array([1e-6, 1e6])
DECADES = 5.0  # on either side of one
GARBAGE, SIZE = 0.01, 1e3  # share of the rows, and how large it is


def garbled(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n dim"]:
    """Replace one row in a hundred by large numbers that say nothing."""
    lost = rng.uniform(size=(len(theta), 1)) < GARBAGE
    return np.where(lost, SIZE * rng.normal(size=theta.shape), theta + NOISE * rng.normal(size=theta.shape))


def log_garbled(theta: Float[np.ndarray, "n dim"], x: Float[np.ndarray, " dim_x"]) -> Float[np.ndarray, " n"]:
    """Return the log density of a row that is garbage or not."""
    lost = np.full(len(theta), log_normal_density(x, SIZE).sum())
    return log_mixture(lost, log_normal_density(x - theta, NOISE).sum(axis=1), GARBAGE)


SIMULATORS: tuple[Adversary, ...] = (
    Adversary(
        "units",
        "Data in units of a millionth and of a million.",
        cube(2),
        lambda theta, rng: UNITS * (theta + NOISE * rng.normal(size=theta.shape)),
        ByFactors(lambda t, i, x: log_normal_density(x[i] / UNITS[i] - t, NOISE)),
    ),
    Adversary(
        "parameter_units",
        "Parameters in units of a millionth and of a million.",
        Box((0.0, 0.0), (1e-6, 1e6)),
        lambda theta, rng: theta / UNITS + 0.1 * rng.normal(size=theta.shape),
        ByFactors(lambda t, i, x: log_normal_density(x[i] - t / UNITS[i], 0.1)),
    ),
    Adversary(
        "magnitudes",
        "Data that spread over ten orders of magnitude.",
        cube(2, -DECADES, DECADES),
        lambda theta, rng: 10.0 ** (theta + NOISE * rng.normal(size=theta.shape)),
        ByFactors(lambda t, i, x: log_normal_density(np.log10(x[i]) - t, NOISE)),
    ),
    Adversary(
        "garbage",
        "One row in a hundred is garbage, three hundred times as large as the rest.",
        cube(2),
        garbled,
        OnPlane(log_garbled),
    ),
)
