r"""Two moons: a posterior of two thin crescents.

    a ~ U(-pi/2, pi/2),   r ~ N(0.1, 0.01^2),   p = (r cos a + 0.25, r sin a),
    x = p + (-|theta_1 + theta_2|, -theta_1 + theta_2) / sqrt(2),      theta ~ U[-1, 1]^2.

With z_0 = (theta_1 + theta_2) / sqrt(2) and z_1 = (theta_2 - theta_1) / sqrt(2), the data fix
p_1 = x_1 + |z_0| and p_2 = x_2 - z_1.  The map from theta to p has unit Jacobian, so the posterior is drawn
exactly: draw p, solve for (|z_0|, z_1), give z_0 a random sign, and reject what falls outside the box or
needs |z_0| < 0.
"""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unle.space import Prior
from unle_bench.tasks.exact_draws import draw_by_rejection
from unle_bench.tasks.task import Task

CENTRE = 0.25
RADIUS, RADIUS_SD = 0.1, 0.01


def _crescent(n: int, rng: np.random.Generator) -> Float[np.ndarray, "n 2"]:
    """Draw p, the noise of the simulator."""
    angle = rng.uniform(-np.pi / 2, np.pi / 2, n)
    radius = rng.normal(RADIUS, RADIUS_SD, n)
    return np.stack([radius * np.cos(angle) + CENTRE, radius * np.sin(angle)], axis=1)


def _turned(theta: Float[np.ndarray, "n 2"]) -> tuple[np.ndarray, np.ndarray]:
    return (theta[:, 0] + theta[:, 1]) / np.sqrt(2), (theta[:, 1] - theta[:, 0]) / np.sqrt(2)


def simulate_rows(theta: Float[np.ndarray, "n 2"], rng: np.random.Generator) -> Float[np.ndarray, "n 2"]:
    """Simulate one x per row of theta."""
    z_0, z_1 = _turned(np.asarray(theta, dtype=np.float64))
    return (_crescent(len(theta), rng) + np.stack([-np.abs(z_0), z_1], axis=1)).astype(np.float32)


def on_device(key: PRNGKeyArray, theta: Float[Array, " 2"]) -> Float[Array, " 2"]:
    """Simulate one x in JAX."""
    key_angle, key_radius = jr.split(key)
    angle = jr.uniform(key_angle, minval=-jnp.pi / 2, maxval=jnp.pi / 2)
    radius = RADIUS + RADIUS_SD * jr.normal(key_radius)
    z_0, z_1 = (theta[0] + theta[1]) / jnp.sqrt(2.0), (theta[1] - theta[0]) / jnp.sqrt(2.0)
    return jnp.stack([radius * jnp.cos(angle) + CENTRE - jnp.abs(z_0), radius * jnp.sin(angle) + z_1])


def log_likelihood_rows(theta: Float[np.ndarray, "n 2"], x: Float[np.ndarray, " 2"]) -> Float[np.ndarray, " n"]:
    """Return log p(x | theta) = log N(r; 0.1, 0.01^2) - log(pi r): uniform angle, normal radius r of p."""
    z_0, z_1 = _turned(theta)
    right, up = x[0] + np.abs(z_0) - CENTRE, x[1] - z_1
    radius = np.hypot(right, up)
    with np.errstate(divide="ignore"):
        log_radial = -0.5 * ((radius - RADIUS) / RADIUS_SD) ** 2 - np.log(RADIUS_SD * np.sqrt(2 * np.pi))
        return np.where(right > 0, log_radial - np.log(np.pi * radius), -np.inf)


def draw_posterior(x_o: Float[np.ndarray, " 2"], n: int, rng: np.random.Generator) -> Float[np.ndarray, "n 2"]:
    """Draw exactly from the posterior by inverting the simulator."""

    def propose(count: int) -> tuple[Float[np.ndarray, "count 2"], Float[np.ndarray, " count"]]:
        p = _crescent(count, rng)
        distance, z_1 = p[:, 0] - x_o[0], x_o[1] - p[:, 1]
        z_0 = distance * rng.choice([-1.0, 1.0], count)
        theta = np.stack([z_0 - z_1, z_0 + z_1], axis=1) / np.sqrt(2)
        possible = (distance >= 0) & (np.abs(theta) <= 1).all(axis=1)
        return theta, np.where(possible, 0.0, -np.inf)

    return draw_by_rejection(propose, n, rng).draws


TASK = Task(
    name="two_moons",
    description="two parameters, two data; the posterior is a pair of thin crescents",
    prior=Prior.uniform(-np.ones(2), np.ones(2)),
    names_x=("x_1", "x_2"),
    simulate_rows=simulate_rows,
    log_likelihood_rows=log_likelihood_rows,
    draw_posterior=draw_posterior,
    on_device=on_device,
)
