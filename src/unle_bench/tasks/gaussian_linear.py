"""Gaussian, linear: ten parameters, each seen through normal noise, with a normal and with a uniform prior.

    gaussian_linear            theta ~ N(0, 0.1 I_10),    x ~ N(theta, 0.1 I)      (0.1 is the variance, in both),
    gaussian_linear_uniform    theta ~ U[-1, 1]^10,       x ~ N(theta, 0.1 I).

With the normal prior the posterior is N(x / 2, 0.05 I): the one task on which every method should come out at 1/2. With
the uniform one the noise (sd 0.32) is wide compared with the box, so every observation has coordinates at or beyond a
wall, and the posterior is a product of normals N(x_i, 0.1) truncated to [-1, 1].
"""

import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unle.space import Prior
from unle_bench.tasks.exact_draws import draw_truncated_normal
from unle_bench.tasks.task import Task

DIM = 10
SD = np.sqrt(0.1)  # of the noise, and of the normal prior


def simulate_rows(theta: Float[np.ndarray, "n 10"], rng: np.random.Generator) -> Float[np.ndarray, "n 10"]:
    """Simulate one x per row of theta."""
    return (np.asarray(theta) + SD * rng.standard_normal(np.shape(theta), dtype=np.float32)).astype(np.float32)


def simulate_rows_in_double(theta: Float[np.ndarray, "n 10"], rng: np.random.Generator) -> Float[np.ndarray, "n 10"]:
    """Simulate one x per row of theta, with noise that is drawn in double precision."""
    return (np.asarray(theta) + SD * rng.normal(size=np.shape(theta))).astype(np.float32)


def on_device(key: PRNGKeyArray, theta: Float[Array, " 10"]) -> Float[Array, " 10"]:
    """Simulate one x in JAX."""
    return theta + float(SD) * jr.normal(key, (DIM,))


def log_likelihood_rows(theta: Float[np.ndarray, "n 10"], x: Float[np.ndarray, " 10"]) -> Float[np.ndarray, " n"]:
    """Return log N(x; theta, 0.1 I)."""
    return -0.5 * np.sum(((x - theta) / SD) ** 2, axis=1) - DIM * np.log(SD * np.sqrt(2 * np.pi))


def draw_normal(x_o: Float[np.ndarray, " 10"], n: int, rng: np.random.Generator) -> Float[np.ndarray, "n 10"]:
    """Draw from N(x_o / 2, 0.05 I)."""
    return x_o / 2 + SD / np.sqrt(2) * rng.normal(size=(n, DIM))


def draw_truncated(x_o: Float[np.ndarray, " 10"], n: int, rng: np.random.Generator) -> Float[np.ndarray, "n 10"]:
    """Draw independent truncated normals by inverting their distribution functions."""
    return draw_truncated_normal(np.broadcast_to(x_o, (n, DIM)), SD, rng, wall=1.0)


TASKS = {
    "gaussian_linear": Task(
        name="gaussian_linear",
        description="ten parameters with a normal prior, each with normal noise; the posterior is normal",
        prior=Prior.normal(np.zeros(DIM), np.full(DIM, SD)),
        names_x=tuple(f"x_{i}" for i in range(1, DIM + 1)),
        simulate_rows=simulate_rows,
        log_likelihood_rows=log_likelihood_rows,
        draw_posterior=draw_normal,
        on_device=on_device,
    ),
    "gaussian_linear_uniform": Task(
        name="gaussian_linear_uniform",
        description="ten parameters in a box, each with normal noise; the walls of the box matter",
        prior=Prior.uniform(-np.ones(DIM), np.ones(DIM)),
        names_x=tuple(f"x_{i}" for i in range(1, DIM + 1)),
        simulate_rows=simulate_rows_in_double,
        log_likelihood_rows=log_likelihood_rows,
        draw_posterior=draw_truncated,
        on_device=on_device,
    ),
}
