r"""A stochastic epidemic with ten weekly counts, and its likelihood by a particle filter.

A thousand people, five infected.  Every day each susceptible person is infected with probability 1 - exp(-beta I / N)
and each infected one recovers with probability 1 - exp(-gamma); x are the new cases of ten weeks.

At the end of a week the number of susceptible people is known from the data, so that only I is hidden.  The filter
draws six days of a week; the infections of the seventh are then determined by the week's count, and their probability
is the weight.  Its estimate of the likelihood has no bias.  Around the posterior, log p(x | theta) is smooth in
(log beta, log gamma): a polynomial of degree four through many estimates averages their noise and is the likelihood
from there on.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float
from scipy.special import gammaln, xlog1py, xlogy

from unle_bench.adversary.exact import AbstractSolution, Data, Draw, OnPlane, PerRow, Thetas
from unle_bench.adversary.priors import AbstractPrior, LogNormals
from unle_bench.adversary.simulator import Adversary

PEOPLE, INFECTED = 1000, 5
WEEKS, DAYS = 10, 7
PRIOR = LogNormals((float(np.log(0.5)), float(np.log(0.2))), (0.5, 0.5))
LOOKS, PILOTS, PILOT_PARTICLES = 6, 300, 100  # to find the posterior
POINTS, PARTICLES = 500, 1500  # to learn the likelihood there
FARTHEST = 4.5  # standard deviations from the middle: there are no points beyond, and hardly any weight
DEGREE = 4
SMALLEST_ESS = 30.0


def epidemic(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n weeks"]:
    """Simulate seventy days and count new cases by the week."""
    n = len(theta)
    infected = np.full(n, INFECTED)
    susceptible = PEOPLE - infected
    cases = np.zeros((n, WEEKS))
    for day in range(WEEKS * DAYS):
        new, recovered = _one_day(theta, susceptible, infected, rng)
        susceptible, infected = susceptible - new, infected + new - recovered
        cases[:, day // DAYS] += new
    return cases


def estimate_log_likelihood(
    theta: Float[np.ndarray, "n dim"], x: Float[np.ndarray, " weeks"], rng: np.random.Generator, *, particles: int
) -> Float[np.ndarray, " n"]:
    """Return log of an unbiased estimate of p(x | theta), by a particle filter for every row of theta."""
    n = len(theta)
    repeated = np.repeat(theta, particles, axis=0)
    infected = np.full(n * particles, INFECTED)
    susceptible = PEOPLE - infected
    total = np.zeros(n)
    for week in range(len(x)):
        seen = np.zeros(n * particles)
        for _ in range(DAYS - 1):
            new, recovered = _one_day(repeated, susceptible, infected, rng)
            susceptible, infected = susceptible - new, infected + new - recovered
            seen += new
        last = x[week] - seen
        chance = -np.expm1(-repeated[:, 0] * infected / PEOPLE)
        log_weights = _log_binomial(last, susceptible, chance).reshape(n, particles)
        highest = log_weights.max(axis=1)
        possible = np.isfinite(highest)
        weights = np.exp(log_weights - np.where(possible, highest, 0.0)[:, None])
        weights = np.where(possible[:, None], weights, 1.0)
        total += np.where(possible, highest + np.log(weights.mean(axis=1)), -np.inf)
        # the last day: its infections are known now
        new = np.clip(last, 0, susceptible).astype(int)
        recovered = rng.binomial(infected, -np.expm1(-repeated[:, 1]))
        susceptible, infected = susceptible - new, infected + new - recovered
        chosen = _resampled(weights, rng)
        susceptible, infected = susceptible[chosen], infected[chosen]
    return total


def _one_day(
    theta: Float[np.ndarray, "n dim"], susceptible: np.ndarray, infected: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return new infections and recoveries."""
    new = rng.binomial(susceptible, -np.expm1(-theta[:, 0] * infected / PEOPLE))
    return new, rng.binomial(infected, -np.expm1(-theta[:, 1]))


def _log_binomial(k: np.ndarray, n: np.ndarray, p: np.ndarray) -> np.ndarray:
    possible = (k >= 0) & (k <= n)
    k = np.where(possible, k, 0)
    log_p = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1) + xlogy(k, p) + xlog1py(n - k, -p)
    return np.where(possible, log_p, -np.inf)


def _resampled(weights: Float[np.ndarray, "n particles"], rng: np.random.Generator) -> np.ndarray:
    """Return indices of all particles, resampled systematically within their row."""
    n, particles = weights.shape
    cumulative = np.cumsum(weights, axis=1) / weights.sum(axis=1, keepdims=True)
    marks = (np.arange(particles) + rng.uniform(size=(n, 1))) / particles
    rows = np.arange(n)[:, None]
    # one search for all rows: row i occupies the numbers from i to i + 1
    chosen = np.searchsorted((cumulative + rows).ravel(), (marks + rows).ravel()) - np.repeat(
        rows * particles, particles
    )
    return np.clip(chosen, 0, particles - 1) + np.repeat(rows * particles, particles)


@dataclass(frozen=True)
class ByFilter(AbstractSolution):
    """A polynomial through the estimates of a particle filter."""

    def log_likelihood(self, theta: Thetas, x: Data) -> PerRow:
        """Return the polynomial, -inf far from the posterior."""
        return learned(tuple(map(float, x)))(np.log(theta))

    def draw_from(self, prior: AbstractPrior, x: Data) -> Draw:
        """Lay a grid over the plane."""
        return OnPlane(self.log_likelihood).draw_from(prior, x)


@lru_cache(maxsize=8)
def learned(x: tuple[float, ...]) -> Callable[[Float[np.ndarray, "n dim"]], Float[np.ndarray, " n"]]:
    """Return log p(x | z) as a function of z = (log beta, log gamma), learned around the posterior."""
    rng = np.random.default_rng(0)
    counts = np.asarray(x)
    mean, factor = _found(counts, rng)
    angles, radii = rng.uniform(0, 2 * np.pi, POINTS), FARTHEST * rng.uniform(size=POINTS) ** 0.7
    standard = np.stack([radii * np.cos(angles), radii * np.sin(angles)], axis=1)
    values = estimate_log_likelihood(np.exp(mean + standard @ factor.T), counts, rng, particles=PARTICLES)
    usable = np.isfinite(values)
    # Where the posterior has its weight the polynomial must fit best.
    weights = np.exp(-0.15 * radii**2)[usable]
    design = _powers(standard[usable])
    coefficients = np.linalg.lstsq(design * weights[:, None], values[usable] * weights, rcond=None)[0]

    def log_likelihood(z: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, " n"]:
        place = np.linalg.solve(factor, (z - mean).T).T
        near = np.linalg.norm(place, axis=1) < FARTHEST
        return np.where(near, _powers(np.where(near[:, None], place, 0.0)) @ coefficients, -np.inf)

    return log_likelihood


def _powers(z: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n terms"]:
    powers = [(i, j) for i in range(DEGREE + 1) for j in range(DEGREE + 1 - i)]
    return np.stack([z[:, 0] ** i * z[:, 1] ** j for i, j in powers], axis=1)


def _found(
    x: Float[np.ndarray, " weeks"], rng: np.random.Generator
) -> tuple[Float[np.ndarray, " dim"], Float[np.ndarray, "dim dim"]]:
    """Return mean and Cholesky factor of the posterior of z, by importance sampling that refits its proposal."""
    mean, factor = np.asarray(PRIOR.means), np.diag(PRIOR.sds)
    for _ in range(LOOKS):
        standard = 1.3 * rng.normal(size=(PILOTS, 2))
        z = mean + standard @ factor.T
        estimates = estimate_log_likelihood(np.exp(z), x, rng, particles=PILOT_PARTICLES)
        log_weights = estimates + PRIOR.log_density_of_z(z) + 0.5 * np.sum((standard / 1.3) ** 2, axis=1)
        weights = _flattened(log_weights)
        mean = weights @ z
        factor = np.linalg.cholesky((z - mean).T @ (weights[:, None] * (z - mean)))
    return mean, factor


def _flattened(log_weights: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Return weights to a power at which enough of them count."""
    power = 1.0
    while True:
        weights = np.exp(power * (log_weights - log_weights.max()))
        weights /= weights.sum()
        if 1 / np.sum(weights**2) >= SMALLEST_ESS or power < 1e-4:
            return weights
        power *= 0.8


def _from(beta: float, gamma: float, seed: int) -> tuple[float, ...]:
    """Return the first epidemic at these parameters that does not die out."""
    rows = epidemic(np.tile([beta, gamma], (20, 1)), np.random.default_rng(seed))
    return tuple(rows[rows.sum(axis=1) > 100][0].tolist())


EPIDEMIC = Adversary(
    "epidemic",
    "Ten weekly counts of a stochastic epidemic: everyday data with hidden dynamics.",
    PRIOR,
    epidemic,
    ByFilter(),
    given={"typical": _from(0.4, 0.15, 1), "tail": _from(0.8, 0.15, 2), "edge": _from(0.35, 0.2, 3)},
)
