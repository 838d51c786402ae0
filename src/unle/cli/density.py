"""The learned density of two parameters on a grid, for a figure."""

import numpy as np
from jaxtyping import Float

from unle.posterior import Posterior

POINTS = 401  # per axis
CHUNK = 20_000  # points evaluated at once


def density_on_grid(
    posterior: Posterior, x_o: Float[np.ndarray, "rows dim_x"]
) -> tuple[Float[np.ndarray, " i"], Float[np.ndarray, " j"], Float[np.ndarray, "j i"]]:
    """Evaluate the posterior of two parameters with a bounded prior, normalised over the prior's box.

    Args:
        posterior: of two parameters.
        x_o: the observation.

    Returns:
        The axes x (i,) and y (j,) of the grid, and the density (j, i) on it.
    """
    low, high = posterior.prior.bounds
    x, y = (np.linspace(low[i], high[i], POINTS) for i in range(2))
    points = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    surplus = np.repeat(points[-1:], -len(points) % CHUNK, axis=0)  # every chunk of one shape: one compilation
    chunks = np.concatenate([points, surplus]).reshape(-1, CHUNK, 2)
    logs = np.concatenate([np.asarray(posterior.log_prob(chunk, x_o), float) for chunk in chunks])
    logs = logs[: len(points)].reshape(POINTS, POINTS)
    density = np.exp(logs - logs.max())
    return x, y, density / (density.sum() * (x[1] - x[0]) * (y[1] - y[0]))
