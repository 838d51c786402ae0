"""A neuron's spikes, summarised: the number of spikes and the sums of the stimulus before them.

The model is that of `bernoulli_glm_raw`; the data are the ten numbers x = X^T y, on which its likelihood depends.
The first is an integer, the others lie on a fine lattice.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unle_bench.tasks import bernoulli_glm_raw as raw
from unle_bench.tasks.task import Task

_DESIGN_32 = raw.DESIGN.astype(np.float32)


def simulate_rows(theta: Float[np.ndarray, "n 10"], rng: np.random.Generator) -> Float[np.ndarray, "n 10"]:
    """Simulate one x per row of theta."""
    return raw.simulate_rows(theta, rng) @ _DESIGN_32


def simulator(theta: Float[np.ndarray, " 10"], rng: np.random.Generator) -> Float[np.ndarray, " 10"]:
    """Simulate one x for one theta."""
    return simulate_rows(np.asarray(theta)[None], rng)[0]


def on_device(key: PRNGKeyArray, theta: Float[Array, " 10"]) -> Float[Array, " 10"]:
    """Simulate one x in JAX."""
    return raw.on_device(key, theta) @ jnp.asarray(_DESIGN_32)


def log_likelihood_rows(theta: Float[np.ndarray, "n 10"], x: Float[np.ndarray, " 10"]) -> Float[np.ndarray, " n"]:
    """Return log p(x | theta) for sums that some y has: a stimulus of white noise has no two y with the same sums."""
    return raw.log_likelihood_of_sums(theta, x)


def draw_posterior(x_o: Float[np.ndarray, " 10"], n: int, rng: np.random.Generator) -> Float[np.ndarray, "n 10"]:
    """Draw theta from the posterior."""
    return raw.sample_given_sums(x_o, n, rng).draws


TASK = Task(
    name="bernoulli_glm",
    description="offset and filter of a neuron from ten sums over its spikes",
    prior=raw.PRIOR,
    names_x=("spikes", *(f"sum_{lag}" for lag in range(raw.LAGS))),
    simulator=simulator,
    simulate_rows=simulate_rows,
    log_likelihood_rows=log_likelihood_rows,
    draw_posterior=draw_posterior,
    on_device=on_device,
)
