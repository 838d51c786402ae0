r"""A neuron's spikes: a hundred zeros and ones that depend on a stimulus through a filter.

    y_t ~ Bernoulli(1 / (1 + exp(-(X theta)_t))),   t = 1, ..., 100,   x = y,

X has a column of ones and the stimulus, white noise, lagged by 0 to 8 bins.  theta ~ N(0, P^-1): the offset has
precision 1/2, the filter a precision F^T F that makes it smooth, F = D^2 + diag(sqrt(i / 9)), D the first difference.

These are the data of `bernoulli_glm_raw`. The log posterior is concave and depends on y through X^T y alone: the data
of `bernoulli_glm` are these ten numbers, the number of spikes and sums of the stimulus before them. The first is an
integer, the others lie on a fine lattice. Both tasks have the same posteriors; what differs is how hard a hundred
binary data are for a method.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float, PRNGKeyArray

from unle.errors import InputError
from unle.space import Prior
from unle_bench.tasks.exact_draws import Accepted, sample_around
from unle_bench.tasks.task import Task

BINS, LAGS = 100, 9
DIM = 1 + LAGS
NEWTON_STEPS = 100


def _design() -> Float[np.ndarray, "100 10"]:
    """Return X, rebuilt from the benchmark's seed."""
    stimulus = np.random.RandomState(42).randn(BINS).astype(np.float32)
    lagged = [np.concatenate([np.zeros(lag), stimulus[: BINS - lag]]) for lag in range(LAGS)]
    return np.stack([np.ones(BINS), *lagged], axis=1)


def _precision() -> Float[np.ndarray, "10 10"]:
    """Return P."""
    difference = np.eye(LAGS) - np.eye(LAGS, k=-1)
    smooth = difference @ difference + np.diag(np.sqrt(np.arange(LAGS) / LAGS))
    precision = np.zeros((DIM, DIM))
    precision[0, 0] = 0.5
    precision[1:, 1:] = smooth.T @ smooth
    return precision


DESIGN, PRECISION = _design(), _precision()
_DESIGN_32 = DESIGN.astype(np.float32)


def simulate_rows(theta: Float[np.ndarray, "n 10"], rng: np.random.Generator) -> Float[np.ndarray, "n 100"]:
    """Simulate one x per row of theta."""
    odds = np.exp(-(np.asarray(theta, dtype=np.float32) @ _DESIGN_32.T))
    return (rng.random((len(theta), BINS), dtype=np.float32) * (1 + odds) < 1).astype(np.float32)


def on_device(key: PRNGKeyArray, theta: Float[Array, " 10"]) -> Float[Array, " 100"]:
    """Simulate one x in JAX."""
    return (jr.uniform(key, (BINS,)) < jax.nn.sigmoid(jnp.asarray(_DESIGN_32) @ theta)).astype(jnp.float32)


def log_likelihood_of_sums(theta: Float[np.ndarray, "n 10"], sums: Float[np.ndarray, " 10"]) -> Float[np.ndarray, " n"]:
    """Return theta . X^T y - sum_t log(1 + exp (X theta)_t), which is log p(y | theta)."""
    return theta @ sums - np.sum(np.logaddexp(0.0, theta @ DESIGN.T), axis=1)


def log_likelihood_rows(theta: Float[np.ndarray, "n 10"], x: Float[np.ndarray, " 100"]) -> Float[np.ndarray, " n"]:
    """Return log p(x | theta); -inf unless x is binary."""
    return log_likelihood_of_sums(theta, DESIGN.T @ x) if _is_binary(x) else np.full(len(theta), -np.inf)


def _is_binary(x: Float[np.ndarray, " 100"]) -> bool:
    return bool(((x == 0) | (x == 1)).all())


def sample_given_sums(sums: Float[np.ndarray, " 10"], n: int, rng: np.random.Generator) -> Accepted:
    """Draw theta given X^T y: Newton's method finds the mode, independent draws come by rejection around it."""

    def log_density(theta: Float[np.ndarray, "n 10"]) -> Float[np.ndarray, " n"]:
        return log_likelihood_of_sums(theta, sums) - 0.5 * np.einsum("ni,ij,nj->n", theta, PRECISION, theta)

    mode, curvature = np.zeros(DIM), PRECISION
    for _ in range(NEWTON_STEPS):
        shares = 1 / (1 + np.exp(-np.clip(DESIGN @ mode, -500, 500)))
        curvature = DESIGN.T @ ((shares * (1 - shares))[:, None] * DESIGN) + PRECISION
        move = np.linalg.solve(curvature, sums - DESIGN.T @ shares - PRECISION @ mode)
        sizes = 0.5 ** np.arange(12.0)  # halved until the density rises
        mode = mode + sizes[np.argmax(log_density(mode + sizes[:, None] * move))] * move
        if np.abs(move).max() < 1e-10:
            break
    return sample_around(mode, curvature, log_density, n, rng)


def draw_posterior(x_o: Float[np.ndarray, " 100"], n: int, rng: np.random.Generator) -> Float[np.ndarray, "n 10"]:
    """Draw theta from the posterior."""
    if not _is_binary(x_o):
        raise InputError(f"expected zeros and ones; got {x_o}; try an observation of this task.")
    return sample_given_sums(DESIGN.T @ x_o, n, rng).draws


PRIOR = Prior(
    dist.MultivariateNormal(np.zeros(DIM), scale_tril=np.linalg.cholesky(np.linalg.inv(PRECISION))),
    names=["offset", *(f"filter_{lag}" for lag in range(LAGS))],
)


def simulate_sums(theta: Float[np.ndarray, "n 10"], rng: np.random.Generator) -> Float[np.ndarray, "n 10"]:
    """Simulate one X^T y per row of theta."""
    return simulate_rows(theta, rng) @ _DESIGN_32


def sums_on_device(key: PRNGKeyArray, theta: Float[Array, " 10"]) -> Float[Array, " 10"]:
    """Simulate one X^T y in JAX."""
    return on_device(key, theta) @ jnp.asarray(_DESIGN_32)


def draw_posterior_of_sums(
    x_o: Float[np.ndarray, " 10"], n: int, rng: np.random.Generator
) -> Float[np.ndarray, "n 10"]:
    """Draw theta from the posterior given X^T y."""
    return sample_given_sums(x_o, n, rng).draws


TASKS = {
    "bernoulli_glm": Task(
        name="bernoulli_glm",
        description="offset and filter of a neuron from ten sums over its spikes",
        prior=PRIOR,
        names_x=("spikes", *(f"sum_{lag}" for lag in range(LAGS))),
        simulate_rows=simulate_sums,
        log_likelihood_rows=log_likelihood_of_sums,  # a stimulus of white noise has no two y with the same sums
        draw_posterior=draw_posterior_of_sums,
        on_device=sums_on_device,
    ),
    "bernoulli_glm_raw": Task(
        name="bernoulli_glm_raw",
        description="offset and filter of a neuron from its hundred zeros and ones",
        prior=PRIOR,
        names_x=tuple(f"y_{t}" for t in range(1, BINS + 1)),
        simulate_rows=simulate_rows,
        log_likelihood_rows=log_likelihood_rows,
        draw_posterior=draw_posterior,
        on_device=on_device,
    ),
}
