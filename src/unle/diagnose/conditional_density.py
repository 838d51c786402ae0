r"""Conditional posteriors: two parameters at a time, all others held at one point.

Marginals of many parameters can be wide although every single one is pinned down once the others are known.  The
conditional density q(theta_i, theta_j | theta_rest = centre, x_o) shows this, and its correlation says how a change of
one parameter can be made up for by another.

Reference: Goncalves et al., "Training deep neural density estimators to identify mechanistic models of neural
dynamics", 2020, which calls it compensation between parameters.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from unle.errors import InputError
from unle.posterior import Posterior
from unle.progress import progress

GRID_POINTS = 40  # per axis
POINTS_AT_ONCE = 8000
MOST_PARAMETERS = 40  # parameters


@dataclass(frozen=True)
class Conditional:
    """Conditional densities around a point.

    Attributes:
        names: of the parameters.
        centre: where the other parameters are held.
        axes: the grid of every parameter.
        single: density of each parameter given all others, normalised on its grid.
        pair: density of (i, j) for i > j given all others; axes (j, i) as an image has them; zero for i <= j.
        correlation: of each pair given all others.
    """

    names: tuple[str, ...]
    centre: Float[np.ndarray, " dim"]
    axes: Float[np.ndarray, "dim points"]
    single: Float[np.ndarray, "dim points"]
    pair: Float[np.ndarray, "dim dim points points"]
    correlation: Float[np.ndarray, "dim dim"]


def conditional(
    posterior: Posterior, x_o: Any, centre: Any = None, *, low: Any = None, high: Any = None, points: int = GRID_POINTS
) -> Conditional:
    """Evaluate all conditional densities of one and two parameters.

    Args:
        posterior: with a density; a wrapper that corrects the normaliser works as well.
        x_o: the observation.
        centre: where the others are held; the most probable theta by default.
        low: begin of every axis; the prior's bound, or a low quantile of it, by default.
        high: end of every axis.
        points: of every axis.
    """
    centre = np.asarray(posterior.map(x_o) if centre is None else centre, float)
    dim = posterior.prior.dim
    limits = posterior.prior.limits()
    low = np.asarray(limits[0] if low is None else low, float)
    high = np.asarray(limits[1] if high is None else high, float)
    if centre.shape != (dim,) or not np.isfinite(np.stack([low, high])).all() or dim > MOST_PARAMETERS:
        raise InputError(
            f"expected a centre of {dim} numbers, finite ends and {MOST_PARAMETERS} parameters at most; try low, high."
        )
    axes = np.linspace(low, high, points).T
    wanted = [(i, j) for i in range(dim) for j in range(i)]
    grids = [_single(centre, axes, i) for i in range(dim)] + [_pair(centre, axes, i, j) for i, j in wanted]
    logs = _evaluate(posterior, np.concatenate(grids), x_o)
    single = np.stack([_normalised(part) for part in logs[: dim * points].reshape(dim, points)])
    pair = np.zeros((dim, dim, points, points))
    correlation = np.eye(dim)
    for (i, j), part in zip(wanted, logs[dim * points :].reshape(-1, points, points), strict=True):
        pair[i, j] = _normalised(part)
        correlation[i, j] = correlation[j, i] = _correlation(pair[i, j], axes[j], axes[i])
    return Conditional(posterior.prior.names, centre, axes, single, pair, correlation)


def _single(centre, axes, i):
    points = np.tile(centre, (axes.shape[1], 1))
    points[:, i] = axes[i]
    return points


def _pair(centre, axes, i, j):
    k = axes.shape[1]
    points = np.tile(centre, (k * k, 1))
    points[:, i], points[:, j] = np.repeat(axes[i], k), np.tile(axes[j], k)
    return points


def _evaluate(posterior: Posterior, points: np.ndarray, x_o: Any) -> np.ndarray:
    surplus = np.repeat(points[-1:], -len(points) % POINTS_AT_ONCE, axis=0)  # chunks of one shape: one compilation
    chunks = np.concatenate([points, surplus]).reshape(-1, POINTS_AT_ONCE, points.shape[1])
    logs = []
    with progress("Conditional densities", total=len(points)) as bar:
        for chunk in chunks:
            logs.append(np.asarray(posterior.log_prob(chunk, x_o), float))
            bar.advance(min(len(chunk), len(points) - (len(logs) - 1) * POINTS_AT_ONCE))
    return np.concatenate(logs)[: len(points)]


def _normalised(logs: np.ndarray) -> np.ndarray:
    top = logs.max()
    weights = np.exp(logs - top) if np.isfinite(top) else np.ones_like(logs)
    return weights / weights.sum()


def _correlation(weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> float:
    """Return the correlation of a density with axes (y, x)."""
    across, along = weights.sum(axis=0), weights.sum(axis=1)
    dx, dy = x - across @ x, y - along @ y
    scale = np.sqrt((across @ dx**2) * (along @ dy**2))
    return float(dy @ weights @ dx / scale) if scale > 0 else 0.0
