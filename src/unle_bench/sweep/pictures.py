"""Arrays that figures need and rows do not hold: some draws, and densities of two parameters or two data on a grid."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unle.diagnose import density_grid
from unle.models import AbstractLikelihood, DoublyIntractableLikelihood, TractableLikelihood
from unle.posterior import Draws, Posterior
from unle_bench.tasks.task import Task

KEPT = 2000  # draws
POINTS = 161  # per axis of a grid of data
SIMULATED = 4000  # data that set the grid's range


def pictures(task: Task, posterior: Posterior | None, i: int, draws: Float[np.ndarray, "n d"]) -> dict[str, dict]:
    """Return arrays by name: "draws" always, "density" of two parameters, "likelihood" of a toy's two data."""
    chosen = np.linspace(0, len(draws) - 1, min(KEPT, len(draws))).astype(int)
    found = {"draws": {"draws": draws[chosen].astype(np.float32)}}
    likelihood = getattr(posterior, "likelihood", None)
    if posterior is None or likelihood is None:
        return found
    if task.dim_theta == 2 and isinstance(likelihood, TractableLikelihood):
        as_draws = Draws(draws[None], task.prior.names, task.observation(i)[None], 0, float("nan"), {})
        (first, second), density = density_grid(posterior, as_draws)
        found["density"] = {"first": first, "second": second, "density": density.astype(np.float32)}
    if task.dim_x == 2 and task.own and likelihood.space_of_x() is not None:  # a toy, made to be looked at
        found["likelihood"] = likelihood_grid(task, likelihood, task.true_parameters(i))
    return found


def likelihood_grid(
    task: Task, likelihood: AbstractLikelihood, theta: Float[np.ndarray, " d"]
) -> dict[str, np.ndarray]:
    """Return q(x | theta) of two data on a grid, normalised over it, with the grid's axes and theta."""
    x = np.asarray(task.simulate(np.tile(theta, (SIMULATED, 1)), 0), np.float64)
    low, high = x.min(axis=0), x.max(axis=0)
    axes = [np.linspace(a - 0.3 * (b - a), b + 0.3 * (b - a), POINTS) for a, b in zip(low, high, strict=True)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    logs = np.asarray(
        _log_density(likelihood, jnp.asarray(theta, jnp.float32), jnp.asarray(points, jnp.float32)), float
    )
    density = np.exp(logs - np.nanmax(logs)).reshape(POINTS, POINTS)
    density /= density.sum() * (axes[0][1] - axes[0][0]) * (axes[1][1] - axes[1][0])
    return {"first": axes[0], "second": axes[1], "density": density.astype(np.float32), "theta": np.asarray(theta)}


@eqx.filter_jit
def _log_density(likelihood: Any, theta: Float[Array, " d"], points: Float[Array, "n 2"]) -> Float[Array, " n"]:
    def one(x):
        w, log_det = likelihood.prepare(x), likelihood.space_of_x().log_det(x)
        if isinstance(likelihood, DoublyIntractableLikelihood):  # its unknown Z(theta) is one number here
            return likelihood.log_unnormalised(theta, w) + log_det
        return likelihood.log_likelihood(theta, w) + log_det

    return jax.vmap(one)(points)
