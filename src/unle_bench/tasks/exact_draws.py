r"""Independent draws from posteriors that are known: the tools of the tasks' references.

* Truncated normals, exact far into the tails: `draw_truncated_normal`.
* Rejection: a proposal is kept with probability w / max w, w = target / proposal: `draw_by_rejection`.
* Importance sampling that finds its own proposal, for a posterior with one main mode and least-squares form, p(z)
  proportional to exp(-|r(z)|^2 / 2): `sample_by_importance`. Levenberg-Marquardt steps from many starts find the mode
  and the curvature J^T J there; a Student-t with these is refitted twice to its own weighted draws. Then w is nearly
  flat, and rejection leaves independent draws without repeats. Many evaluations of the model, no tuning, no chains.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import log_ndtr, ndtri_exp

from unle.errors import InputError, UnleWarning


def _flipped(mean, sd, wall):
    """Return standardised ends (low, high), mirrored so that the interval never lies in the right tail."""
    low, high = (-wall - mean) / sd, (wall - mean) / sd
    mirror = low + high > 0
    return np.where(mirror, -high, low), np.where(mirror, -low, high), np.where(mirror, -1.0, 1.0)


def log_truncated_mass(mean: np.ndarray | float, sd: np.ndarray | float, *, wall: float) -> np.ndarray:
    """Return the log probability that N(mean, sd^2) falls in [-wall, wall]; arguments broadcast."""
    low, high, _ = _flipped(mean, sd, wall)
    return log_ndtr(high) + np.log1p(-np.exp(log_ndtr(low) - log_ndtr(high)))


def draw_truncated_normal(
    mean: np.ndarray, sd: np.ndarray | float, rng: np.random.Generator, *, wall: float
) -> np.ndarray:
    """Draw once per entry of `mean` from N(mean, sd^2) given that the draw lies in [-wall, wall].

    Inverts the distribution function, in logs: v = Phi^-1(Phi(low) + t (Phi(high) - Phi(low))), t uniform.
    """
    low, high, sign = _flipped(mean, sd, wall)
    t = rng.uniform(size=np.shape(mean))
    log_probability = log_ndtr(high) + np.log(t + (1 - t) * np.exp(log_ndtr(low) - log_ndtr(high)))
    return np.clip(mean + sd * sign * ndtri_exp(log_probability), -wall, wall)


# Proposals in all before giving up: a posterior that keeps none of them is not one to sample by rejection.
MOST_PROPOSALS = 20_000_000
SMALLEST_BATCH, LARGEST_BATCH = 4000, 400_000  # the first must be large enough to know max w

Propose = Callable[[int], tuple[Float[np.ndarray, "count dim"], Float[np.ndarray, " count"]]]


@dataclass(frozen=True)
class Accepted:
    """Independent draws and how well the proposal fitted."""

    draws: Float[np.ndarray, "n dim"]
    ess: float  # effective share of the proposals under their weights, 0 ... 1
    proposals: int


def draw_by_rejection(propose: Propose, n: int, rng: np.random.Generator) -> Accepted:
    """Collect n accepted proposals.

    The largest weight seen in all batches bounds w = target / proposal.  A later, larger one thins what was
    kept before, so that all draws pass the same test.

    Args:
        propose: makes that many proposals; returns them with log w, up to a constant, -inf where impossible.
        n: draws wanted.
        rng: source of the acceptance variables.
    """
    kept, log_margins = [], []  # of the kept: log w - log u, to be compared with log max w
    bound, batch, proposals, total, total_of_squares = -np.inf, max(2 * n, SMALLEST_BATCH), 0, 0.0, 0.0
    while True:
        rows, log_weights = propose(batch)
        proposals += batch
        higher = max(bound, float(log_weights.max()))
        if np.isfinite(higher):
            if np.isfinite(bound):
                total, total_of_squares = (
                    total * np.exp(bound - higher),
                    total_of_squares * np.exp(2 * (bound - higher)),
                )
            bound = higher
            weights = np.exp(log_weights - bound)
            total, total_of_squares = total + weights.sum(), total_of_squares + np.sum(weights**2)
            margins = log_weights - np.log(rng.uniform(size=batch))
            kept.append(rows[margins > bound])
            log_margins.append(margins[margins > bound])
        passed = np.concatenate(log_margins) > bound if kept else np.zeros(0, dtype=bool)
        if passed.sum() >= n:
            share = total**2 / total_of_squares / proposals
            return Accepted(np.concatenate(kept)[passed][:n], float(share), proposals)
        if proposals >= MOST_PROPOSALS:
            raise InputError(
                f"expected data that the task can produce; got {passed.sum()} draws from {proposals}"
                " proposals; try an observation inside the simulator's range."
            )
        rate = max(passed.sum() / proposals, 1e-6)
        batch = int(np.clip(1.2 * (n - passed.sum()) / rate, SMALLEST_BATCH, LARGEST_BATCH))


DEGREES = 5.0  # of freedom: tails heavier than those of a normal, so that the weights are bounded
BEST_STARTS = 16
ITERATIONS = 40
DIFFERENCE = 3e-3  # step of the numerical derivative; the model may be computed in single precision
REFITS, REFIT_DRAWS = 2, 4000
POOREST_ESS = 0.1  # below this share the proposal does not fit, and max w is badly known

Residuals = Callable[[Float[np.ndarray, "n dim"]], Float[np.ndarray, "n terms"]]


@dataclass(frozen=True)
class Student:
    """Multivariate Student-t with location `mean` and scale matrix factor @ factor.T."""

    mean: Float[np.ndarray, " dim"]
    factor: Float[np.ndarray, "dim dim"]

    def draw(self, n: int, rng: np.random.Generator) -> Float[np.ndarray, "n dim"]:
        """Draw n rows."""
        normal = rng.normal(size=(n, len(self.mean)))
        return self.mean + np.sqrt(DEGREES / rng.chisquare(DEGREES, size=(n, 1))) * normal @ self.factor.T

    def log_density(self, z: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, " n"]:
        """Return the log density of every row, up to a constant."""
        squares = np.sum(np.linalg.solve(self.factor, (z - self.mean).T) ** 2, axis=0)
        return -(DEGREES + len(self.mean)) / 2 * np.log1p(squares / DEGREES)


def sample_by_importance(
    residuals: Residuals, starts: Float[np.ndarray, "k dim"], n: int, rng: np.random.Generator
) -> Accepted:
    """Draw n times from exp(-|r(z)|^2 / 2).

    Args:
        residuals: r for rows of z, (n, dim) to (n, terms); rows that are not finite count as impossible.
        starts: where to look for the mode; many draws of the prior.
        n: draws wanted.
        rng: source of randomness.

    Returns:
        The draws, with the effective share of the proposals.  Warns when that share is poor.
    """
    mode, precision = find_mode(residuals, starts)
    return sample_around(mode, precision, lambda z: -0.5 * _squares(residuals(z)), n, rng)


def sample_around(
    mode: Float[np.ndarray, " dim"],
    precision: Float[np.ndarray, "dim dim"],
    log_density: Callable[[np.ndarray], np.ndarray],
    n: int,
    rng: np.random.Generator,
) -> Accepted:
    """Draw n times from a density with one main mode, whose place and curvature are known.

    Args:
        mode: of the density.
        precision: minus the second derivative of its logarithm there.
        log_density: up to a constant, for rows of z.
        n: draws wanted.
        rng: source of randomness.
    """
    proposal = Student(mode, np.linalg.inv(np.linalg.cholesky(precision)).T)
    for _ in range(REFITS):
        z = proposal.draw(REFIT_DRAWS, rng)
        proposal = _refitted(proposal, z, log_density(z) - proposal.log_density(z))

    def propose(count: int) -> tuple[Float[np.ndarray, "count dim"], Float[np.ndarray, " count"]]:
        z = proposal.draw(count, rng)
        return z, log_density(z) - proposal.log_density(z)

    accepted = draw_by_rejection(propose, n, rng)
    if accepted.ess < POOREST_ESS:
        warnings.warn(
            f"the reference sampler's proposal fits poorly (effective share {accepted.ess:.3f});"
            " its draws may miss part of the posterior",
            UnleWarning,
            stacklevel=2,
        )
    return accepted


def find_mode(
    residuals: Residuals, starts: Float[np.ndarray, "k dim"]
) -> tuple[Float[np.ndarray, " dim"], Float[np.ndarray, "dim dim"]]:
    """Minimise |r(z)|^2 from the best starts; return the minimum and J^T J there.

    Each start keeps its own damping, raised when a step fails and lowered when it succeeds; all starts move
    in one batch, since the model is cheapest in batches.
    """
    z = starts[np.argsort(_squares(residuals(starts)))[:BEST_STARTS]]
    k, dim = z.shape
    damping = np.ones(k)
    steps = DIFFERENCE * np.eye(dim)
    for _ in range(ITERATIONS):
        around = np.concatenate([z[None], z + steps[:, None], z - steps[:, None]])
        values = residuals(around.reshape(-1, dim)).reshape(2 * dim + 1, k, -1)
        here, slopes = values[0], (values[1 : dim + 1] - values[dim + 1 :]) / (2 * DIFFERENCE)
        slopes = np.nan_to_num(slopes)
        curvature = np.einsum("ikt,jkt->kij", slopes, slopes)
        gradient = np.einsum("ikt,kt->ki", slopes, np.nan_to_num(here))
        damped = curvature * (1 + damping[:, None, None] * np.eye(dim)) + 1e-9 * np.eye(dim)
        moved = z - np.linalg.solve(damped, gradient[..., None])[..., 0]
        better = _squares(residuals(moved)) < _squares(here)
        z = np.where(better[:, None], moved, z)
        damping = np.clip(np.where(better, damping / 3, damping * 4), 1e-9, 1e9)
    best = int(np.argmin(_squares(residuals(z))))
    return z[best], curvature[best] + 1e-9 * np.eye(dim)


def _squares(residuals: Float[np.ndarray, "n terms"]) -> Float[np.ndarray, " n"]:
    squares = np.sum(residuals**2, axis=1)
    return np.where(np.isfinite(squares), squares, np.inf)


def _refitted(proposal: Student, z: Float[np.ndarray, "n dim"], log_weights: Float[np.ndarray, " n"]) -> Student:
    """Match mean and covariance to the weighted draws, unless too few of them count."""
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    if 1 / np.sum(weights**2) < 20 * len(proposal.mean):
        return proposal
    mean = weights @ z
    return Student(mean, np.linalg.cholesky((z - mean).T @ (weights[:, None] * (z - mean))))
