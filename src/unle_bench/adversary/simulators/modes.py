"""Posteriors with several modes, curved posteriors, and noise whose size depends on theta."""

import numpy as np
from jaxtyping import Float

from unle_bench.adversary.exact import ByFactors, ByTempering, OnPlane
from unle_bench.adversary.priors import Box, cube
from unle_bench.adversary.simulator import Adversary
from unle_bench.adversary.simulators.densities import log_mixture, log_normal_density

NOISE = 0.1
PLACES = np.linspace(-1.0, 1.0, 10)  # of the two regressions
REGRESSION_NOISE = 0.2
ALONG, ACROSS = 0.5, 0.2  # noise of the banana
SMALLEST, GROWTH, SKEW = 0.3, 0.4, 0.75  # of the skewed noise


def regressions(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n places"]:
    """Draw every point from one of two lines through the origin."""
    first = rng.uniform(size=(len(theta), len(PLACES))) < theta[:, 2:]
    slopes = np.where(first, theta[:, :1], theta[:, 1:2])
    return slopes * PLACES + REGRESSION_NOISE * rng.normal(size=slopes.shape)


def log_regressions(theta: Float[np.ndarray, "n dim"], x: Float[np.ndarray, " places"]) -> Float[np.ndarray, " n"]:
    """Return the log density of the mixture at every place, summed."""
    first, second = (log_normal_density(x - theta[:, k : k + 1] * PLACES, REGRESSION_NOISE) for k in (0, 1))
    return log_mixture(first, second, theta[:, 2:]).sum(axis=1)


def banana(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n dim"]:
    """Bend the plane."""
    bent = np.stack([theta[:, 0], theta[:, 1] + theta[:, 0] ** 2], axis=1)
    return bent + np.array([ALONG, ACROSS]) * rng.normal(size=theta.shape)


def log_banana(theta: Float[np.ndarray, "n dim"], x: Float[np.ndarray, " dim_x"]) -> Float[np.ndarray, " n"]:
    """Return the log density of both coordinates."""
    along = log_normal_density(x[0] - theta[:, 0], ALONG)
    return along + log_normal_density(x[1] - theta[:, 1] - theta[:, 0] ** 2, ACROSS)


def skewed(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n dim"]:
    """Add log-normal noise, larger for larger theta."""
    return theta + SMALLEST * np.exp(GROWTH * theta + SKEW * rng.normal(size=theta.shape))


def log_skewed(t: Float[np.ndarray, " n"], i: int, x: Float[np.ndarray, " dim_x"]) -> Float[np.ndarray, " n"]:
    """Return the log density, -inf where theta lies above x."""
    excess = x[i] - t
    log_excess = np.log(np.where(excess > 0, excess, 1.0))
    density = log_normal_density(log_excess - np.log(SMALLEST) - GROWTH * t, SKEW) - log_excess
    return np.where(excess > 0, density, -np.inf)


def wedge(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n dim"]:
    """Add normal noise whose size is the distance from zero."""
    return theta + (0.05 + 0.5 * np.abs(theta)) * rng.normal(size=theta.shape)


def log_wedge(t: Float[np.ndarray, " n"], i: int, x: Float[np.ndarray, " dim_x"]) -> Float[np.ndarray, " n"]:
    """Return the log density."""
    return log_normal_density(x[i] - t, 0.05 + 0.5 * np.abs(t))


SIMULATORS: tuple[Adversary, ...] = (
    Adversary(
        "square",
        "Two modes of theta, mirror images.",
        cube(1),
        lambda theta, rng: theta**2 + NOISE * rng.normal(size=theta.shape),
        ByFactors(lambda t, i, x: log_normal_density(x[i] - t**2, NOISE)),
    ),
    Adversary(
        "absolute",
        "Two modes of theta and a corner between them.",
        cube(1),
        lambda theta, rng: np.abs(theta) + NOISE * rng.normal(size=theta.shape),
        ByFactors(lambda t, i, x: log_normal_density(x[i] - np.abs(t), NOISE)),
    ),
    Adversary(
        "sine",
        "Six modes of theta.",
        cube(1),
        lambda theta, rng: np.sin(3 * theta) + NOISE * rng.normal(size=theta.shape),
        ByFactors(lambda t, i, x: log_normal_density(x[i] - np.sin(3 * t), NOISE)),
    ),
    Adversary(
        "regressions",
        "A mixture of two lines with an unknown weight: modes in x, mirror images in theta.",
        Box((-2.0, -2.0, 0.05), (2.0, 2.0, 0.95)),
        regressions,
        ByTempering(log_regressions),
        simulations=10_000,
    ),
    Adversary("banana", "A curved posterior.", cube(2, -2.0, 2.0), banana, OnPlane(log_banana)),
    Adversary(
        "skewed",
        "Log-normal noise that grows with theta, and data that lie on one side of it.",
        cube(2),
        skewed,
        ByFactors(log_skewed),
    ),
    Adversary("wedge", "Noise that vanishes where theta does.", cube(2), wedge, ByFactors(log_wedge)),
)
