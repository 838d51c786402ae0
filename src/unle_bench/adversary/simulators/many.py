"""Many parameters, many data, many simulations."""

import numpy as np
from jaxtyping import Float

from unle_bench.adversary.exact import ByFactors, Conjugate, OnPlane
from unle_bench.adversary.priors import Box, Normals, cube
from unle_bench.adversary.simulator import Adversary
from unle_bench.adversary.simulators.densities import log_normal_density, log_student_density
from unle_bench.adversary.simulators.tails import DEGREES, NOISES, SCALE

MATRIX = np.random.default_rng(30).normal(size=(40, 30)) / np.sqrt(30)
NOISE = 0.5
TIMES = np.arange(100) / 10


def wave(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n times"]:
    """Return a hundred readings of a wave of unknown frequency around an unknown level."""
    return np.sin(theta[:, :1] * TIMES) + theta[:, 1:] + NOISE * rng.normal(size=(len(theta), len(TIMES)))


def log_wave(theta: Float[np.ndarray, "n dim"], x: Float[np.ndarray, " times"]) -> Float[np.ndarray, " n"]:
    """Return the log density, through the sums that it depends on."""
    waves = np.sin(theta[:, :1] * TIMES)
    residual = np.sum(x**2) - 2 * waves @ x + np.einsum("nt,nt->n", waves, waves)
    level = theta[:, 1]
    residual += len(TIMES) * level**2 - 2 * level * (x.sum() - waves.sum(axis=1))
    return -0.5 * residual / NOISE**2


SIMULATORS: tuple[Adversary, ...] = (
    Adversary(
        "thirty_parameters",
        "Thirty parameters and forty data, linear and normal.",
        Normals((1.0,) * 30),
        lambda theta, rng: theta @ MATRIX.T + NOISE * rng.normal(size=(len(theta), len(MATRIX))),
        Conjugate(MATRIX, NOISE),
        simulations=10_000,
    ),
    Adversary(
        "twelve_bounded",
        "Twelve parameters between walls, each with a number of its own.",
        cube(12, -1.0, 1.0),
        lambda theta, rng: theta + NOISE * rng.normal(size=theta.shape),
        ByFactors(lambda t, i, x: log_normal_density(x[i] - t, NOISE)),
    ),
    Adversary(
        "wave",
        "A hundred numbers from two parameters, with a posterior far narrower than the prior.",
        Box((0.5, -1.0), (3.0, 1.0)),
        wave,
        OnPlane(log_wave),
    ),
    Adversary(
        "many_simulations",
        "Heavy tails with ten thousand simulations: more data do not help the wrong family.",
        cube(2),
        lambda theta, rng: theta + NOISES["student"][1](theta.shape, rng),
        ByFactors(lambda t, i, x: log_student_density(x[i] - t, SCALE, DEGREES)),
        simulations=10_000,
    ),
)
