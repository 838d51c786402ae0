r"""SIR: how fast an epidemic spreads and how fast people recover, from ten counts of infected people.

    S' = -beta S I / N,   I' = beta S I / N - gamma I,   N = 10^6,   (S, I)(0) = (N - 1, 1),
    x_k ~ Binomial(1000, I / N on day 17 k),   k = 0, ..., 9,
    log beta ~ N(log 0.4, 0.5^2),   log gamma ~ N(log 0.125, 0.2^2).

The equations are integrated for s = log S / N and i = log I / N, s' = -beta e^i and i' = beta e^s - gamma, by
Runge-Kutta steps of half a day: the epidemic grows over six decades, a straight line in logs.  Over 5000 draws of the
prior the largest error of i was 5e-5.

A binomial log-likelihood is half a sum of squares, that of its deviance residuals, so the posterior of log theta has
the form that `sample_by_importance` draws from.
"""

import math

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.special import gammaln, xlogy

from unle.errors import InputError
from unle.space import Prior
from unle_bench.tasks.equations import in_blocks, integrate
from unle_bench.tasks.exact_draws import Accepted, sample_by_importance
from unle_bench.tasks.task import Task

LOG_MEAN, LOG_SD = np.log([0.4, 0.125]), np.array([0.5, 0.2])
PEOPLE, TESTED = 1e6, 1000
START = (math.log1p(-1 / PEOPLE), -math.log(PEOPLE))
DAYS_BETWEEN, N_COUNTS = 17, 10
STEPS = 34  # between two counts
STEP = DAYS_BETWEEN / STEPS
N_STARTS = 512  # prior draws among which the search for the posterior's mode begins


@jax.jit
def _solve_block(theta: Float[Array, "n 2"]) -> Float[Array, "n 10"]:
    """Return log I / N on the days of the counts, for a block of rows at once."""
    beta, gamma = theta.T

    def slope(state: Float[Array, "2 n"]) -> Float[Array, "2 n"]:
        susceptible, infected = jnp.exp(state)
        return jnp.stack([-beta * infected, beta * susceptible - gamma])

    states = integrate(slope, START, beta, step=STEP, steps=STEPS, times=N_COUNTS)
    return states[:, 1].T


def log_infected(theta: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, "n 10"]:
    """Solve the equations for every row of theta; log I / N, at most 0; NaN if the solver fails."""
    return np.minimum(in_blocks(_solve_block, theta, filler=0.1), 0.0)


def simulate_rows(theta: Float[np.ndarray, "n 2"], rng: np.random.Generator) -> Float[np.ndarray, "n 10"]:
    """Simulate one x per row of theta; a row of NaN where the solver fails."""
    shares = np.exp(log_infected(theta))
    failed = np.isnan(shares)
    counts = rng.binomial(TESTED, np.where(failed, 0.0, shares))
    return np.where(failed, np.nan, counts).astype(np.float32)


def simulator(theta: Float[np.ndarray, " 2"], rng: np.random.Generator) -> Float[np.ndarray, " 10"]:
    """Simulate one x for one theta, in plain Python numbers: nothing to compile in worker processes."""
    beta, gamma = (float(value) for value in theta)
    exp, half = math.exp, 0.5 * STEP
    s, i = START
    logs = [i]
    try:
        for _ in range(N_COUNTS - 1):
            for _ in range(STEPS):
                a_1, b_1 = -beta * exp(i), beta * exp(s) - gamma
                a_2, b_2 = -beta * exp(i + half * b_1), beta * exp(s + half * a_1) - gamma
                a_3, b_3 = -beta * exp(i + half * b_2), beta * exp(s + half * a_2) - gamma
                a_4, b_4 = -beta * exp(i + STEP * b_3), beta * exp(s + STEP * a_3) - gamma
                s += STEP / 6 * (a_1 + 2 * (a_2 + a_3) + a_4)
                i += STEP / 6 * (b_1 + 2 * (b_2 + b_3) + b_4)
            logs.append(i)
    except OverflowError:
        logs = [math.nan]
    if not np.isfinite(logs).all():
        return np.full(N_COUNTS, np.nan, dtype=np.float32)
    return rng.binomial(TESTED, np.exp(np.minimum(logs, 0.0))).astype(np.float32)


def on_device(key: PRNGKeyArray, theta: Float[Array, " 2"]) -> Float[Array, " 10"]:
    """Simulate one x in JAX."""
    shares = jnp.exp(jnp.minimum(_solve_block(theta[None])[0], 0.0))
    return jr.binomial(key, float(TESTED), shares)


def log_likelihood_rows(theta: Float[np.ndarray, "n 2"], x: Float[np.ndarray, " 10"]) -> Float[np.ndarray, " n"]:
    """Return the log probability of ten binomial counts; -inf unless x could be counts."""
    if not _are_counts(x):
        return np.full(len(theta), -np.inf)
    logs = log_infected(theta)
    with np.errstate(divide="ignore"):
        others = np.where(TESTED - x > 0, (TESTED - x) * np.log(-np.expm1(logs)), 0.0)
    choices = gammaln(TESTED + 1) - gammaln(x + 1) - gammaln(TESTED - x + 1)
    return np.sum(choices + x * logs + others, axis=1)


def _are_counts(x: Float[np.ndarray, " 10"]) -> bool:
    return bool(((x >= 0) & (x <= TESTED) & (x == np.round(x))).all())


def sample_posterior(x_o: Float[np.ndarray, " 10"], n: int, rng: np.random.Generator) -> Accepted:
    """Draw log theta from the posterior by importance sampling, with the effective share of the proposals."""
    if not _are_counts(x_o):
        raise InputError(f"expected whole numbers from 0 to {TESTED}; got {x_o}; try an observation of this task.")

    def residuals(z: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, "n 12"]:
        shares = np.exp(log_infected(np.exp(z)))
        expected, others = TESTED * shares, TESTED - TESTED * shares
        with np.errstate(divide="ignore", invalid="ignore"):
            deviance = xlogy(x_o, x_o / expected) + xlogy(TESTED - x_o, (TESTED - x_o) / others)
        signed = np.sign(x_o - expected) * np.sqrt(2 * np.maximum(deviance, 0.0))
        return np.concatenate([signed, (z - LOG_MEAN) / LOG_SD], axis=1)

    starts = LOG_MEAN + LOG_SD * rng.normal(size=(N_STARTS, 2))
    return sample_by_importance(residuals, starts, n, rng)


def draw_posterior(x_o: Float[np.ndarray, " 10"], n: int, rng: np.random.Generator) -> Float[np.ndarray, "n 2"]:
    """Draw theta from the posterior."""
    return np.exp(sample_posterior(x_o, n, rng).draws)


TASK = Task(
    name="sir",
    description="two rates of an epidemic from ten counts of infected people",
    prior=Prior.lognormal(LOG_MEAN, LOG_SD, names=["beta", "gamma"]),
    names_x=tuple(f"infected_{DAYS_BETWEEN * k}" for k in range(N_COUNTS)),
    simulator=simulator,
    simulate_rows=simulate_rows,
    log_likelihood_rows=log_likelihood_rows,
    draw_posterior=draw_posterior,
    on_device=on_device,
)
