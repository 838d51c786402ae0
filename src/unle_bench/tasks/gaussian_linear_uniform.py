"""Gaussian, linear, uniform prior: ten parameters, each seen through normal noise, inside a box.

    theta ~ U[-1, 1]^10,    x ~ N(theta, 0.1 I)      (0.1 is the variance).

The noise (sd 0.32) is wide compared with the box, so every observation has coordinates at or beyond a wall.
The posterior is a product of normals N(x_i, 0.1) truncated to [-1, 1].
"""

import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unle.space import Prior
from unle_bench.tasks.exact_draws import draw_truncated_normal
from unle_bench.tasks.task import Task

DIM = 10
NOISE_SD = np.sqrt(0.1)


def simulate_rows(theta: Float[np.ndarray, "n 10"], rng: np.random.Generator) -> Float[np.ndarray, "n 10"]:
    """Simulate one x per row of theta."""
    return (np.asarray(theta) + NOISE_SD * rng.normal(size=np.shape(theta))).astype(np.float32)


def simulator(theta: Float[np.ndarray, " 10"], rng: np.random.Generator) -> Float[np.ndarray, " 10"]:
    """Simulate one x for one theta."""
    return simulate_rows(np.asarray(theta)[None], rng)[0]


def on_device(key: PRNGKeyArray, theta: Float[Array, " 10"]) -> Float[Array, " 10"]:
    """Simulate one x in JAX."""
    return theta + float(NOISE_SD) * jr.normal(key, (DIM,))


def log_likelihood_rows(theta: Float[np.ndarray, "n 10"], x: Float[np.ndarray, " 10"]) -> Float[np.ndarray, " n"]:
    """Return log N(x; theta, 0.1 I)."""
    squares = np.sum(((x - theta) / NOISE_SD) ** 2, axis=1)
    return -0.5 * squares - DIM * np.log(NOISE_SD * np.sqrt(2 * np.pi))


def draw_posterior(x_o: Float[np.ndarray, " 10"], n: int, rng: np.random.Generator) -> Float[np.ndarray, "n 10"]:
    """Draw independent truncated normals by inverting their distribution functions."""
    return draw_truncated_normal(np.broadcast_to(x_o, (n, DIM)), NOISE_SD, rng, wall=1.0)


TASK = Task(
    name="gaussian_linear_uniform",
    description="ten parameters in a box, each with normal noise; the walls of the box matter",
    prior=Prior.uniform(-np.ones(DIM), np.ones(DIM)),
    names_x=tuple(f"x_{i}" for i in range(1, DIM + 1)),
    simulator=simulator,
    simulate_rows=simulate_rows,
    log_likelihood_rows=log_likelihood_rows,
    draw_posterior=draw_posterior,
    on_device=on_device,
)
