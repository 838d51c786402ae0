"""Support that moves with theta, walls at the posterior, a prior that is not a box, data on a simplex."""

import numpy as np
from jaxtyping import Float
from scipy.special import gammaln

from unle_bench.adversary.exact import ByFactors, Conjugate, OnPlane
from unle_bench.adversary.priors import Box, Normals, cube
from unle_bench.adversary.simulator import Adversary
from unle_bench.adversary.simulators.densities import log_normal_density

HALF_WIDTH = 1.0
READINGS = 4
CORNER_NOISE = 0.3
CORRELATION, CORRELATED_NOISE = 0.95, 0.5
CONCENTRATION = 20.0  # of the shares


def log_uniform(t: Float[np.ndarray, " n"], i: int, x: Float[np.ndarray, " dim_x"]) -> Float[np.ndarray, " n"]:
    """Return 0 where theta is within reach of x."""
    return np.where(np.abs(x[i] - t) <= HALF_WIDTH, 0.0, -np.inf)


def within(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n readings"]:
    """Draw four readings between theta_1 - theta_2 and theta_1 + theta_2."""
    return theta[:, :1] + theta[:, 1:] * rng.uniform(-1.0, 1.0, size=(len(theta), READINGS))


def log_within(theta: Float[np.ndarray, "n dim"], x: Float[np.ndarray, " readings"]) -> Float[np.ndarray, " n"]:
    """Return the log density of all readings, -inf where one is out of reach."""
    reach = np.max(np.abs(x - theta[:, :1]), axis=1)
    return np.where(reach <= theta[:, 1], -READINGS * np.log(theta[:, 1]), -np.inf)


def shares_of(theta: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n shares"]:
    """Break a stick: theta_1 of it, theta_2 of the rest, and what is left."""
    first = theta[:, 0]
    second = (1 - first) * theta[:, 1]
    return np.stack([first, second, (1 - first) * (1 - theta[:, 1])], axis=1)


def shares(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n shares"]:
    """Draw three shares that add up to one, around those of theta."""
    parts = rng.gamma(CONCENTRATION * shares_of(theta))
    return parts / parts.sum(axis=1, keepdims=True)


def log_shares(theta: Float[np.ndarray, "n dim"], x: Float[np.ndarray, " shares"]) -> Float[np.ndarray, " n"]:
    """Return the log density of a Dirichlet distribution."""
    weights = CONCENTRATION * shares_of(theta)
    return np.sum((weights - 1) * np.log(x) - gammaln(weights), axis=1)


SIMULATORS: tuple[Adversary, ...] = (
    Adversary(
        "uniform_noise",
        "Support that moves with theta.",
        cube(3),
        lambda theta, rng: theta + rng.uniform(-HALF_WIDTH, HALF_WIDTH, size=theta.shape),
        ByFactors(log_uniform),
    ),
    Adversary(
        "uniform_width",
        "Support whose place and width are the parameters.",
        Box((-3.0, 0.1), (3.0, 3.0)),
        within,
        OnPlane(log_within),
    ),
    Adversary(
        "corner",
        "A posterior in a corner of the prior.",
        cube(3, 0.0, 1.0),
        lambda theta, rng: theta + CORNER_NOISE * rng.normal(size=theta.shape),
        ByFactors(lambda t, i, x: log_normal_density(x[i] - t, CORNER_NOISE)),
        edge=(0.0, 0.0, 1.0),
    ),
    Adversary(
        "correlated_prior",
        "A prior with strong correlations.",
        Normals((1.0, 1.0, 1.0), CORRELATION),
        lambda theta, rng: theta + CORRELATED_NOISE * rng.normal(size=theta.shape),
        Conjugate(np.eye(3), CORRELATED_NOISE),
    ),
    Adversary(
        "shares",
        "Data that add up to one, and parameters between walls.",
        Box((0.05, 0.05), (0.95, 0.95)),
        shares,
        OnPlane(log_shares),
    ),
)
