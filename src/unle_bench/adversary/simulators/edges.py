"""Edges that no single coordinate shows, likelihoods that jump with theta, and starts that nothing comes before."""

import numpy as np
from jaxtyping import Float

from unle_bench.adversary.exact import ByFactors, ByTempering, OnPlane
from unle_bench.adversary.priors import Box, cube
from unle_bench.adversary.simulator import Adversary
from unle_bench.adversary.simulators.densities import log_normal_density

TURN = np.array([[1.0, -1.0], [1.0, 1.0]]) / np.sqrt(2)  # by an eighth
STEP_NOISE = 0.2
FAILURES = 10
CUSTOMERS = 10


def diamond(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n dim"]:
    """Add noise that fills a square which stands on its corner."""
    return theta + rng.uniform(-1.0, 1.0, size=theta.shape) @ TURN.T


def log_diamond(theta: Float[np.ndarray, "n dim"], x: Float[np.ndarray, " dim_x"]) -> Float[np.ndarray, " n"]:
    """Return 0 where x is inside."""
    return np.where(np.abs((x - theta) @ TURN).max(axis=1) <= 1.0, 0.0, -np.inf)


def ball(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n dim"]:
    """Add noise that fills a ball."""
    direction = rng.normal(size=theta.shape)
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    return theta + direction * rng.uniform(size=(len(theta), 1)) ** (1 / theta.shape[1])


def log_ball(theta: Float[np.ndarray, "n dim"], x: Float[np.ndarray, " dim_x"]) -> Float[np.ndarray, " n"]:
    """Return 0 where x is inside."""
    return np.where(np.sum((x - theta) ** 2, axis=1) <= 1.0, 0.0, -np.inf)


def steps(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n dim"]:
    """Read whole numbers below theta, with noise."""
    return np.floor(theta) + STEP_NOISE * rng.normal(size=theta.shape)


def failure_times(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n failures"]:
    """Sort ten times: nothing fails before theta_1, and then at the rate exp(theta_2)."""
    waiting = rng.exponential(size=(len(theta), FAILURES)) * np.exp(-theta[:, 1:])
    return theta[:, :1] + np.sort(waiting, axis=1)


def log_failure_times(theta: Float[np.ndarray, "n dim"], x: Float[np.ndarray, " failures"]) -> Float[np.ndarray, " n"]:
    """Return the log density of exponential times, -inf where one comes before theta_1."""
    density = FAILURES * theta[:, 1] - np.exp(theta[:, 1]) * np.sum(x - theta[:, :1], axis=1)
    return np.where(theta[:, 0] <= x.min(), density, -np.inf)


def queue(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n customers"]:
    """Return times between departures: service takes from theta_1 to theta_1 + theta_2.

    Every other time the server first waits for a customer, exp(theta_3) on average.
    """
    shape = (len(theta), CUSTOMERS)
    service = theta[:, :1] + theta[:, 1:2] * rng.uniform(size=shape)
    idle = np.exp(theta[:, 2:]) * rng.exponential(size=shape)
    return service + np.where(rng.uniform(size=shape) < 0.5, idle, 0.0)


def log_queue(theta: Float[np.ndarray, "n dim"], x: Float[np.ndarray, " customers"]) -> Float[np.ndarray, " n"]:
    """Return the log density: half uniform, half the sum of a uniform and an exponential time."""
    width, idle = theta[:, 1:2], np.exp(theta[:, 2:])
    after = x - theta[:, :1]  # the earliest end of service
    busy = (after >= 0) & (after <= width)
    late = np.maximum(after, 0.0)
    waited = np.exp(-np.maximum(late - width, 0.0) / idle) - np.exp(-late / idle)
    return np.log(0.5 * (busy + waited) / width).sum(axis=1)


SIMULATORS: tuple[Adversary, ...] = (
    Adversary("diamond", "Sharp edges that lie across the coordinates.", cube(2), diamond, OnPlane(log_diamond)),
    Adversary("ball", "A round edge, which every coordinate sees fade out.", cube(3), ball, ByTempering(log_ball)),
    Adversary(
        "steps",
        "A likelihood that jumps wherever theta passes a whole number.",
        cube(2),
        steps,
        ByFactors(lambda t, i, x: log_normal_density(x[i] - np.floor(t), STEP_NOISE)),
    ),
    Adversary(
        "failure_times",
        "Ten sorted times after a start that is a parameter.",
        Box((0.0, -1.0), (3.0, 1.5)),
        failure_times,
        OnPlane(log_failure_times),
    ),
    Adversary(
        "queue",
        "Times between departures, none shorter than the shortest service.",
        Box((0.2, 0.2, -1.0), (3.0, 3.0, 1.5)),
        queue,
        ByTempering(log_queue),
    ),
)
