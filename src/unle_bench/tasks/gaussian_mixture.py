"""A mixture of two normals with one mean: one wide, one narrow.

    theta ~ U[-10, 10]^2,    x ~ N(theta, I) / 2 + N(theta, 0.1^2 I) / 2      (a component for every x).

The posterior has a sharp peak on a broad hill.  Given the component, theta is normal around x and cut to the box;
the components weigh as much as they have mass inside the box.
"""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unle.space import Prior
from unle_bench.tasks.exact_draws import draw_truncated_normal, log_truncated_mass
from unle_bench.tasks.task import Task

WALL = 10.0
SDS = np.array([1.0, 0.1])


def simulate_rows(theta: Float[np.ndarray, "n 2"], rng: np.random.Generator) -> Float[np.ndarray, "n 2"]:
    """Simulate one x per row of theta."""
    sd = SDS[rng.integers(2, size=len(theta))]
    return (np.asarray(theta) + sd[:, None] * rng.normal(size=np.shape(theta))).astype(np.float32)


def on_device(key: PRNGKeyArray, theta: Float[Array, " 2"]) -> Float[Array, " 2"]:
    """Simulate one x in JAX."""
    key_component, key_noise = jr.split(key)
    sd = jnp.where(jr.bernoulli(key_component), *SDS.tolist())
    return theta + sd * jr.normal(key_noise, (2,))


def log_likelihood_rows(theta: Float[np.ndarray, "n 2"], x: Float[np.ndarray, " 2"]) -> Float[np.ndarray, " n"]:
    """Return log [ N(x; theta, I) / 2 + N(x; theta, 0.01 I) / 2 ]."""
    squares = np.sum((x - theta) ** 2, axis=1)
    wide, narrow = (-0.5 * squares / sd**2 - 2 * np.log(sd) for sd in SDS)
    return np.logaddexp(wide, narrow) - np.log(2 * 2 * np.pi)


def draw_posterior(x_o: Float[np.ndarray, " 2"], n: int, rng: np.random.Generator) -> Float[np.ndarray, "n 2"]:
    """Draw the component by its mass inside the box, then theta inside the box."""
    wide, narrow = (np.sum(log_truncated_mass(x_o, sd, wall=WALL)) for sd in SDS)
    sd = np.where(rng.uniform(size=(n, 1)) < 1 / (1 + np.exp(narrow - wide)), *SDS)
    return draw_truncated_normal(np.broadcast_to(x_o, (n, 2)), sd, rng, wall=WALL)


TASK = Task(
    name="gaussian_mixture",
    description="two parameters, the mean of a wide and of a narrow normal; a peak on a hill",
    prior=Prior.uniform(np.full(2, -WALL), np.full(2, WALL)),
    names_x=("x_1", "x_2"),
    simulate_rows=simulate_rows,
    log_likelihood_rows=log_likelihood_rows,
    draw_posterior=draw_posterior,
    on_device=on_device,
)
