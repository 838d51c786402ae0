"""Series in time: an autoregression, a hidden random walk, a damped oscillation, an epidemic."""

import numpy as np
from jaxtyping import Float

from unle_bench.adversary.exact import ByTempering, OnPlane
from unle_bench.adversary.priors import Box
from unle_bench.adversary.simulator import Adversary
from unle_bench.adversary.simulators.densities import log_normal_density
from unle_bench.adversary.simulators.epidemic import EPIDEMIC

POINTS = 40
HIDDEN_POINTS = 30
TIMES = np.linspace(0.0, 10.0, 50)
NOISE = 0.1  # of the oscillation


def autoregression(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n points"]:
    """Draw x_t - mean = phi (x_(t-1) - mean) + sd N, from its stationary start; theta is (mean, phi, log sd)."""
    mean, phi, sd = theta[:, 0], theta[:, 1], np.exp(theta[:, 2])
    steps = sd[:, None] * rng.normal(size=(len(theta), POINTS))
    x = np.empty_like(steps)
    x[:, 0] = steps[:, 0] / np.sqrt(1 - phi**2)
    for t in range(1, POINTS):
        x[:, t] = phi * x[:, t - 1] + steps[:, t]
    return mean[:, None] + x


def log_autoregression(theta: Float[np.ndarray, "n dim"], x: Float[np.ndarray, " points"]) -> Float[np.ndarray, " n"]:
    """Return the log density of the first value and of all steps."""
    phi, sd = theta[:, 1:2], np.exp(theta[:, 2:])
    centred = x - theta[:, :1]
    first = log_normal_density(centred[:, :1], sd / np.sqrt(1 - phi**2))
    steps = log_normal_density(centred[:, 1:] - phi * centred[:, :-1], sd)
    return first[:, 0] + steps.sum(axis=1)


def hidden_walk(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n points"]:
    """Read a random walk with noise; theta is the log of both standard deviations, of a step and of a reading."""
    shape = (len(theta), HIDDEN_POINTS)
    walk = np.cumsum(np.exp(theta[:, :1]) * rng.normal(size=shape), axis=1)
    return walk + np.exp(theta[:, 1:]) * rng.normal(size=shape)


def log_hidden_walk(theta: Float[np.ndarray, "n dim"], x: Float[np.ndarray, " points"]) -> Float[np.ndarray, " n"]:
    """Return the log density by a Kalman filter."""
    step, reading = np.exp(2 * theta[:, 0]), np.exp(2 * theta[:, 1])
    mean, variance, total = np.zeros(len(theta)), np.zeros(len(theta)), np.zeros(len(theta))
    for value in x:
        variance = variance + step
        total += log_normal_density(value - mean, np.sqrt(variance + reading))
        gain = variance / (variance + reading)
        mean, variance = mean + gain * (value - mean), (1 - gain) * variance
    return total


def oscillation(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n times"]:
    """Return a exp(-d t) cos(w t) with noise at fifty times; theta is (w, d, a)."""
    return _swing(theta) + NOISE * rng.normal(size=(len(theta), len(TIMES)))


def log_oscillation(theta: Float[np.ndarray, "n dim"], x: Float[np.ndarray, " times"]) -> Float[np.ndarray, " n"]:
    """Return the log density."""
    return -0.5 * np.sum((x - _swing(theta)) ** 2, axis=1) / NOISE**2


def _swing(theta: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n times"]:
    frequency, damping, size = theta[:, :1], theta[:, 1:2], theta[:, 2:]
    return size * np.exp(-damping * TIMES) * np.cos(frequency * TIMES)


SIMULATORS: tuple[Adversary, ...] = (
    Adversary(
        "autoregression",
        "Forty points in time; what is informative are their products.",
        Box((-2.0, -0.9, -1.5), (2.0, 0.9, 1.0)),
        autoregression,
        ByTempering(log_autoregression),
    ),
    Adversary(
        "hidden_walk",
        "Thirty points whose variances alone say something about theta.",
        Box((-3.0, -3.0), (1.0, 1.0)),
        hidden_walk,
        OnPlane(log_hidden_walk),
    ),
    Adversary(
        "oscillation",
        "Fifty numbers that determine three parameters to a few per cent.",
        Box((0.5, 0.05, 0.5), (3.0, 1.0, 2.0)),
        oscillation,
        ByTempering(log_oscillation),
    ),
    EPIDEMIC,
)
