r"""A likelihood with two modes: the simulator adds or subtracts a fixed shift.

    theta ~ N(0, I_2),   s = +1 or -1 with probability 1/2 each,   x ~ N(theta + s m, 0.1 I_2),   m = (2, 2).

Given s everything is Gaussian: p(x | s) = N(x; s m, 1.1 I) and p(theta | x, s) = N((x - s m) / 1.1, I / 11),
so the posterior is a mixture of two normals with weights proportional to p(x | s).  At x_o = 0 the weights
are equal and the means are +-(1.818, 1.818): methods that fit one Gaussian or drop a mode show at once.
"""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unle.space import Prior
from unle_bench.tasks.task import Task

SHIFT = np.array([2.0, 2.0])
NOISE_VARIANCE = 0.1


def simulate_rows(theta: Float[np.ndarray, "n 2"], rng: np.random.Generator) -> Float[np.ndarray, "n 2"]:
    """Simulate one x per row of theta."""
    sign = rng.choice([-1.0, 1.0], (len(theta), 1))
    noise = np.sqrt(NOISE_VARIANCE) * rng.normal(size=np.shape(theta))
    return (np.asarray(theta) + sign * SHIFT + noise).astype(np.float32)


def on_device(key: PRNGKeyArray, theta: Float[Array, " 2"]) -> Float[Array, " 2"]:
    """Simulate one x in JAX."""
    key_sign, key_noise = jr.split(key)
    shift = jr.rademacher(key_sign, (), jnp.float32) * jnp.asarray(SHIFT, jnp.float32)
    return theta + shift + float(np.sqrt(NOISE_VARIANCE)) * jr.normal(key_noise, (2,))


def log_likelihood_rows(theta: Float[np.ndarray, "n 2"], x: Float[np.ndarray, " 2"]) -> Float[np.ndarray, " n"]:
    """Return log [ N(x; theta + m, 0.1 I) / 2 + N(x; theta - m, 0.1 I) / 2 ]."""
    squares = [np.sum((x - theta - sign * SHIFT) ** 2, axis=1) / NOISE_VARIANCE for sign in (-1.0, 1.0)]
    return np.logaddexp(-0.5 * squares[0], -0.5 * squares[1]) - np.log(2 * 2 * np.pi * NOISE_VARIANCE)


def draw_posterior(x_o: Float[np.ndarray, " 2"], n: int, rng: np.random.Generator) -> Float[np.ndarray, "n 2"]:
    """Draw the sign, then theta given the sign."""
    total = 1 + NOISE_VARIANCE
    log_odds = 2 * SHIFT @ x_o / total  # log p(x_o | s = 1) - log p(x_o | s = -1)
    sign = np.where(rng.uniform(size=(n, 1)) < 1 / (1 + np.exp(-log_odds)), 1.0, -1.0)
    return (x_o - sign * SHIFT) / total + np.sqrt(NOISE_VARIANCE / total) * rng.normal(size=(n, 2))


TASK = Task(
    name="bimodal",
    description="two parameters seen through a random shift of +-(2, 2); two equal modes",
    prior=Prior.normal(np.zeros(2), np.ones(2)),
    names_x=("x_1", "x_2"),
    simulate_rows=simulate_rows,
    log_likelihood_rows=log_likelihood_rows,
    draw_posterior=draw_posterior,
    on_device=on_device,
    own={1: ((2.0, 2.0), (0.0, 0.0))},
)
