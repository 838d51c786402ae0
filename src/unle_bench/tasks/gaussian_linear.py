"""Gaussian, linear: ten parameters with a normal prior, each seen through normal noise.

    theta ~ N(0, 0.1 I_10),    x ~ N(theta, 0.1 I)      (0.1 is the variance, in both).

The posterior is N(x / 2, 0.05 I): the one task on which every method should come out at 1/2.
"""

import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unle.space import Prior
from unle_bench.tasks.task import Task

DIM = 10
SD = np.sqrt(0.1)  # of the prior and of the noise


def simulate_rows(theta: Float[np.ndarray, "n 10"], rng: np.random.Generator) -> Float[np.ndarray, "n 10"]:
    """Simulate one x per row of theta."""
    return (np.asarray(theta) + SD * rng.standard_normal(np.shape(theta), dtype=np.float32)).astype(np.float32)


def simulator(theta: Float[np.ndarray, " 10"], rng: np.random.Generator) -> Float[np.ndarray, " 10"]:
    """Simulate one x for one theta."""
    return simulate_rows(np.asarray(theta)[None], rng)[0]


def on_device(key: PRNGKeyArray, theta: Float[Array, " 10"]) -> Float[Array, " 10"]:
    """Simulate one x in JAX."""
    return theta + float(SD) * jr.normal(key, (DIM,))


def log_likelihood_rows(theta: Float[np.ndarray, "n 10"], x: Float[np.ndarray, " 10"]) -> Float[np.ndarray, " n"]:
    """Return log N(x; theta, 0.1 I)."""
    return -0.5 * np.sum(((x - theta) / SD) ** 2, axis=1) - DIM * np.log(SD * np.sqrt(2 * np.pi))


def draw_posterior(x_o: Float[np.ndarray, " 10"], n: int, rng: np.random.Generator) -> Float[np.ndarray, "n 10"]:
    """Draw from N(x_o / 2, 0.05 I)."""
    return x_o / 2 + SD / np.sqrt(2) * rng.normal(size=(n, DIM))


TASK = Task(
    name="gaussian_linear",
    description="ten parameters with a normal prior, each with normal noise; the posterior is normal",
    prior=Prior.normal(np.zeros(DIM), np.full(DIM, SD)),
    names_x=tuple(f"x_{i}" for i in range(1, DIM + 1)),
    simulator=simulator,
    simulate_rows=simulate_rows,
    log_likelihood_rows=log_likelihood_rows,
    draw_posterior=draw_posterior,
    on_device=on_device,
)
