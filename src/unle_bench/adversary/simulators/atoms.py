"""Data with atoms: a few values, a wall that collects them, counts, shares."""

import numpy as np
from jaxtyping import Float
from scipy.special import gammaln, ndtr, xlog1py, xlogy

from unle_bench.adversary.exact import ByFactors, OnPlane
from unle_bench.adversary.priors import Box, cube
from unle_bench.adversary.simulator import Adversary
from unle_bench.adversary.simulators.densities import log_mixture, log_normal_density, sigmoid

NARROW = 0.3
CENSORED_NOISE = 0.5
READINGS = 6  # with zeros among them
CONCENTRATION = 10.0  # of proportions


def two_valued(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n dim"]:
    """Shift every coordinate by 2 up or down."""
    return theta + rng.choice([-2.0, 2.0], size=theta.shape) + NARROW * rng.normal(size=theta.shape)


def log_two_valued(t: Float[np.ndarray, " n"], i: int, x: Float[np.ndarray, " dim_x"]) -> Float[np.ndarray, " n"]:
    """Return the log density of either shift."""
    return log_mixture(log_normal_density(x[i] - t - 2, NARROW), log_normal_density(x[i] - t + 2, NARROW), 0.5)


def censored(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n dim"]:
    """Show what is positive, and zero for everything else."""
    return np.maximum(theta + CENSORED_NOISE * rng.normal(size=theta.shape), 0.0)


def log_censored(t: Float[np.ndarray, " n"], i: int, x: Float[np.ndarray, " dim_x"]) -> Float[np.ndarray, " n"]:
    """Return the probability of zero, or the density of what is positive."""
    if x[i] <= 0:
        return np.log(ndtr(-t / CENSORED_NOISE))
    return log_normal_density(x[i] - t, CENSORED_NOISE)


def counts(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n dim"]:
    """Count events of rate exp(theta)."""
    return rng.poisson(np.exp(theta)).astype(float)


def log_counts(t: Float[np.ndarray, " n"], i: int, x: Float[np.ndarray, " dim_x"]) -> Float[np.ndarray, " n"]:
    """Return the log probability of a Poisson count."""
    return x[i] * t - np.exp(t)


def zero_inflated(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n readings"]:
    """Count events six times; a share of the readings is zero whatever the rate."""
    shape = (len(theta), READINGS)
    seen = rng.uniform(size=shape) >= theta[:, 1:]
    return np.where(seen, rng.poisson(np.exp(theta[:, :1]), size=shape), 0).astype(float)


def log_zero_inflated(theta: Float[np.ndarray, "n dim"], x: Float[np.ndarray, " readings"]) -> Float[np.ndarray, " n"]:
    """Return the log probability of all six."""
    log_rate, share = theta[:, :1], theta[:, 1:]
    log_poisson = x * log_rate - np.exp(log_rate) - gammaln(x + 1)
    either = np.where(x == 0, share, 0.0) + (1 - share) * np.exp(log_poisson)
    return np.log(either).sum(axis=1)


def proportions(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n dim"]:
    """Draw shares around sigmoid(theta)."""
    mean = sigmoid(theta)
    return rng.beta(CONCENTRATION * mean, CONCENTRATION * (1 - mean))


def log_proportions(t: Float[np.ndarray, " n"], i: int, x: Float[np.ndarray, " dim_x"]) -> Float[np.ndarray, " n"]:
    """Return the log density of a beta distribution."""
    a, b = CONCENTRATION * sigmoid(t), CONCENTRATION * sigmoid(-t)
    return xlogy(a - 1, x[i]) + xlog1py(b - 1, -x[i]) - gammaln(a) - gammaln(b)


def rounded(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n dim"]:
    """Show whole numbers."""
    return np.round(theta + CENSORED_NOISE * rng.normal(size=theta.shape))


def log_rounded(t: Float[np.ndarray, " n"], i: int, x: Float[np.ndarray, " dim_x"]) -> Float[np.ndarray, " n"]:
    """Return the probability of the interval that is rounded to x."""
    above, below = (x[i] + 0.5 - t) / CENSORED_NOISE, (x[i] - 0.5 - t) / CENSORED_NOISE
    flip = below > 0  # differences of small tail probabilities, not of numbers close to one
    return np.log(np.where(flip, ndtr(-below) - ndtr(-above), ndtr(above) - ndtr(below)))


SIMULATORS: tuple[Adversary, ...] = (
    Adversary(
        "two_valued",
        "Sixteen modes of x in four dimensions.",
        cube(4),
        two_valued,
        ByFactors(log_two_valued),
        simulations=5000,
    ),
    Adversary("censored", "An atom at a wall of the data.", cube(2), censored, ByFactors(log_censored)),
    Adversary("counts", "Small counts, which have no density.", cube(3), counts, ByFactors(log_counts)),
    Adversary(
        "zero_inflated",
        "Zeros of two kinds, in a share that is a parameter.",
        Box((-1.0, 0.05), (3.0, 0.95)),
        zero_inflated,
        OnPlane(log_zero_inflated),
    ),
    Adversary(
        "proportions", "Data between zero and one, heaped at both.", cube(2), proportions, ByFactors(log_proportions)
    ),
    Adversary("rounded", "Whole numbers, wider apart than the noise.", cube(2), rounded, ByFactors(log_rounded)),
)
