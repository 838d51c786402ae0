"""Simulations that fail: the posterior of valid data contains P(valid | theta)."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from unle_bench.adversary.exact import AbstractSolution, ByFactors, OnPlane
from unle_bench.adversary.priors import AbstractPrior, Normals, cube
from unle_bench.adversary.simulator import Adversary
from unle_bench.adversary.simulators.densities import log_normal_density, sigmoid

NOISE = 0.5
STEEPNESS = 3.0
FAILS_RIGHT = 0.9  # where theta_1 is positive
FAILS_ANYWHERE = 0.5
FAILS_IN_CENTRE, RADIUS = 0.95, 0.6

LIMIT, LIMIT_NOISE = 1.5, 0.6  # of what a detector can read

Valid = Callable[[Float[np.ndarray, "n dim"]], Float[np.ndarray, " n"]]


def failing(
    name: str,
    attacks: str,
    prior: AbstractPrior,
    valid: Valid,
    solution: AbstractSolution,
    given: dict[str, tuple[float, ...]] | None = None,
) -> Adversary:
    """Return x = theta + .5 N, valid with a probability that depends on theta."""

    def simulate(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n dim"]:
        x = theta + NOISE * rng.normal(size=theta.shape)
        return np.where((rng.uniform(size=len(theta)) < valid(theta))[:, None], x, np.nan)

    return Adversary(name, attacks, prior, simulate, solution, given=given or {})


def log_on_the_right(t: Float[np.ndarray, " n"], i: int, x: Float[np.ndarray, " dim_x"]) -> Float[np.ndarray, " n"]:
    """Return the factor of theta_i; the first contains the probability of a valid simulation."""
    log_valid = np.log(np.where(t > 0, 1 - FAILS_RIGHT, 1.0)) if i == 0 else 0.0
    return log_normal_density(x[i] - t, NOISE) + log_valid


def valid_around_the_centre(theta: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, " n"]:
    """Return the probability of a valid simulation, low in a disc."""
    return np.where(np.hypot(theta[:, 0], theta[:, 1]) < RADIUS, 1 - FAILS_IN_CENTRE, 1.0)


def overflow(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n dim"]:
    """Return x = theta + .6 N, or nothing where a coordinate is beyond what the detector can read."""
    x = theta + LIMIT_NOISE * rng.normal(size=theta.shape)
    return np.where((x > LIMIT).any(axis=1, keepdims=True), np.nan, x)


SIMULATORS: tuple[Adversary, ...] = (
    failing(
        "fails_right",
        "Nine simulations in ten fail where theta_1 is positive.",
        cube(2),
        lambda theta: np.where(theta[:, 0] > 0, 1 - FAILS_RIGHT, 1.0),
        ByFactors(log_on_the_right),
        {"typical": (0.3, 0.5)},
    ),
    failing(
        "fails_anywhere",
        "Half of all simulations fail, whatever theta is.",
        cube(2),
        lambda theta: np.full(len(theta), 1 - FAILS_ANYWHERE),
        ByFactors(lambda t, i, x: log_normal_density(x[i] - t, NOISE)),
    ),
    failing(
        "fails_in_centre",
        "Nearly all simulations fail in the middle of the posterior.",
        cube(2),
        valid_around_the_centre,
        OnPlane(
            lambda theta, x: log_normal_density(x - theta, NOISE).sum(axis=1) + np.log(valid_around_the_centre(theta))
        ),
        {"typical": (0.1, -0.2), "tail": (0.6, 0.6)},
    ),
    failing(
        "fails_upwards",
        "Simulations fail the more often the larger theta is, and the observation lies where they do.",
        Normals((1.0,)),
        lambda theta: sigmoid(-STEEPNESS * theta[:, 0]),
        ByFactors(lambda t, i, x: log_normal_density(x[i] - t, NOISE) - np.logaddexp(0.0, STEEPNESS * t)),
        {"typical": (1.0,), "edge": (2.0,)},
    ),
    Adversary(
        "overflow",
        "Simulations fail where their data are too large, and the observation is as large as it can be.",
        cube(2),
        overflow,
        # p(valid | theta) p(x | theta, valid) is the density of x before anything failed
        ByFactors(lambda t, i, x: log_normal_density(x[i] - t, LIMIT_NOISE)),
        given={"typical": (1.45, 0.2)},
    ),
)
