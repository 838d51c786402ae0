"""Do the draws agree with the density they are drawn from?  For one or two parameters a grid can tell.

The posterior density on a fine grid is summed over coarse cells and compared with the share of draws in each, by total
variation.  How much of it is chance is found by drawing as many cells as there are effective draws from the grid
itself.  It sees what a sampler lost: a mode, a tail, the weight between modes.
"""

import numpy as np
from jaxtyping import Float

from unle.diagnose.record import Check, verdict_of
from unle.diagnose.tails import tail_probability
from unle.errors import InputError
from unle.posterior import Draws, Posterior

TITLE = "Draws against the density"
QUESTION = "Did the sampler find all of the posterior?"
POINTS = 301  # per axis
CELLS = 20  # per axis
CHUNK = 10_000
NULLS = 300
MATERIAL = 0.1  # total variation that matters, beyond what chance gives


def density_grid(posterior: Posterior, draws: Draws) -> tuple[list[np.ndarray], np.ndarray]:
    """Evaluate the posterior on a grid over the draws, and over the prior's box where that is bounded.

    Returns:
        The axes, and the density normalised over the grid; for two parameters with axes (first, second).
    """
    low, high = posterior.prior.bounds
    values = np.asarray(draws, float)
    if values.shape[1] > 2:
        raise InputError(f"expected one or two parameters; got {values.shape[1]}.")
    room = 0.25 * np.ptp(values, axis=0) + 1e-9
    start = np.where(np.isfinite(low), low, values.min(axis=0) - room)
    stop = np.where(np.isfinite(high), high, values.max(axis=0) + room)
    axes = [np.linspace(a, b, POINTS) for a, b in zip(start, stop, strict=True)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, values.shape[1])
    surplus = np.repeat(points[-1:], -len(points) % CHUNK, axis=0)  # chunks of one shape: one compilation
    chunks = np.concatenate([points, surplus]).reshape(-1, CHUNK, values.shape[1])
    logs = np.concatenate([np.asarray(posterior.log_prob(chunk, draws.x_o), float) for chunk in chunks])[: len(points)]
    density = np.exp(logs - logs.max()).reshape([POINTS] * values.shape[1])
    return axes, density / (density.sum() * np.prod([axis[1] - axis[0] for axis in axes]))


def grid_agreement(
    axes: list[Float[np.ndarray, " k"]],
    density: np.ndarray,
    draws: Float[np.ndarray, "n dim"],
    *,
    ess: float | int,
    seed: int = 0,
) -> Check:
    """Compare draws with a density on a grid.

    Args:
        axes: of the grid, one or two.
        density: on it, with one axis each.
        draws: of the same posterior.
        ess: how many independent draws they are worth.
        seed: of the draws of cells behind the p-value.
    """
    draws = np.asarray(draws, float)
    steps = [axis[1] - axis[0] for axis in axes]
    low = np.array([axis[0] - step / 2 for axis, step in zip(axes, steps, strict=True)])
    high = np.array([axis[-1] + step / 2 for axis, step in zip(axes, steps, strict=True)])
    edges = [_edges(axis, step, draws[:, i]) for i, (axis, step) in enumerate(zip(axes, steps, strict=True))]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
    mass, _ = np.histogramdd(points, bins=edges, weights=density.ravel())
    mass = mass.ravel() / mass.sum()
    counts, _ = np.histogramdd(np.clip(draws, low, high), bins=edges)
    share = counts.ravel() / len(draws)
    size = max(int(min(ess, len(draws))), 20)
    null = np.random.default_rng([seed, 505]).multinomial(size, mass, size=NULLS) / size
    distances = 0.5 * np.abs(null - mass).sum(axis=1)
    distance = float(0.5 * np.abs(share - mass).sum())
    p_value = tail_probability(distances, distance)
    beyond = distance - float(distances.mean())
    verdict = verdict_of(p_value)
    if beyond < MATERIAL / 2:  # a difference too small to matter is none, however sure
        verdict = "good"
    elif verdict == "bad" and beyond < MATERIAL:
        verdict = "doubtful"
    advice = (
        "The draws follow the density."
        if verdict == "good"
        else "The draws and their density differ: sample with more particles, and look at the pair plot."
    )
    numbers = {"p": p_value, "total_variation": distance, "expected": float(distances.mean()), "ess": float(size)}
    arrays = {f"axis_{i}": axis for i, axis in enumerate(axes)} | {"density": density, "draws": draws[:2000]}
    return Check("grid", TITLE, QUESTION, verdict, numbers, advice, arrays)


def _edges(axis: np.ndarray, step: float, column: np.ndarray) -> np.ndarray:
    """Return cells of about equal content, whose edges lie halfway between points of the grid."""
    cuts = np.quantile(column, np.linspace(0, 1, CELLS + 1)[1:-1])
    places = np.unique(np.clip(np.round((cuts - axis[0]) / step - 0.5).astype(int), 0, len(axis) - 2))
    return np.concatenate([[axis[0] - step], axis[0] + (places + 0.5) * step, [axis[-1] + step]])
