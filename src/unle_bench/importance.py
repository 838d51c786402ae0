r"""Independent draws from a posterior with one main mode, by importance sampling that finds its own proposal.

The target has least-squares form, p(z) proportional to exp(-|r(z)|^2 / 2), such as normal noise around a
nonlinear model with a normal prior.  Levenberg-Marquardt steps from many starts find the mode and the
curvature J^T J there; a Student-t with these is refitted twice to its own weighted draws.  Then w(z) =
p(z) / q(z) is nearly flat, and accepting a proposal with probability w / max w leaves independent draws
without repeats.  Many evaluations of the model, but no tuning and no chains.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from unle.errors import UnleWarning
from unle_bench.rejection import Accepted, draw_by_rejection

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
