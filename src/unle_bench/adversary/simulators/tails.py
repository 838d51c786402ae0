"""Noise with heavier tails than a normal, in one, two, four and ten dimensions: x = theta + noise."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from unle_bench.adversary.exact import ByFactors
from unle_bench.adversary.priors import cube
from unle_bench.adversary.simulator import Adversary
from unle_bench.adversary.simulators.densities import log_mixture, log_normal_density, log_student_density

SCALE = 0.3
DEGREES = 3.0
CUSP = 0.35  # scale of the Laplace
CLEAN, OUTLYING = 0.9, 3.0  # share of clean readings, and the noise of the others
DIMENSIONS = (1, 2, 4)

Noise = Callable[[tuple[int, ...], np.random.Generator], Float[np.ndarray, "n dim"]]
LogNoise = Callable[[Float[np.ndarray, " n"]], Float[np.ndarray, " n"]]


def additive(name: str, attacks: str, noise: Noise, log_noise: LogNoise, dim: int) -> Adversary:
    """Return x = theta + noise, every coordinate by itself."""
    return Adversary(
        name=f"{name}_{dim}",
        attacks=attacks,
        prior=cube(dim),
        simulate=lambda theta, rng: theta + noise(theta.shape, rng),
        solution=ByFactors(lambda t, i, x: log_noise(x[i] - t)),
    )


def contaminated(shape: tuple[int, ...], rng: np.random.Generator) -> Float[np.ndarray, "n dim"]:
    """Draw normal noise that is ten times as large once in ten readings."""
    return rng.normal(size=shape) * np.where(rng.uniform(size=shape) < CLEAN, SCALE, OUTLYING)


def log_contaminated(residual: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Return the log density of `contaminated`."""
    return log_mixture(log_normal_density(residual, SCALE), log_normal_density(residual, OUTLYING), CLEAN)


NOISES: dict[str, tuple[str, Noise, LogNoise]] = {
    "student": (
        "Tails of a Student-t with three degrees of freedom against a normal base.",
        lambda shape, rng: SCALE * rng.standard_t(DEGREES, size=shape),
        lambda residual: log_student_density(residual, SCALE, DEGREES),
    ),
    "laplace": (
        "A cusp in the middle and exponential tails.",
        lambda shape, rng: rng.laplace(scale=CUSP, size=shape),
        lambda residual: -np.abs(residual) / CUSP,
    ),
    "cauchy": (
        "Tails without mean or variance, by which data are standardised.",
        lambda shape, rng: SCALE * rng.standard_cauchy(size=shape),
        lambda residual: log_student_density(residual, SCALE, 1.0),
    ),
    "contaminated": (
        "One reading in ten with ten times the noise.",
        contaminated,
        log_contaminated,
    ),
}

SIMULATORS: tuple[Adversary, ...] = (
    *(additive(name, *parts, dim) for name, parts in NOISES.items() for dim in DIMENSIONS),
    additive("student", "Heavy tails in ten dimensions at once.", *NOISES["student"][1:], 10),
)
