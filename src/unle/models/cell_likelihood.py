"""The likelihood of data that are spread over cells: counts, yes or no, exact zeros."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from unle.models.ensembles import Consensus, Ensemble, Mixture
from unle.models.likelihood import AbstractWrapper, TractableLikelihood
from unle.space.host_device import on_device

POINTS = 16  # of a cell; a power of two
MOST_CELLS = 12  # coordinates with cells: with more, one of the points would have all the weight; the middle is taken


class OverCells(AbstractWrapper):
    r"""The probability of a cell: the mean density of points in it, up to the cell's volume.

        q(x | theta) \propto 1/J sum_j q(x_j | theta),    x_j the place u_j of the cell of x

    Args:
        likelihood: a density of spread data; see `unle.space.Cells`.
        places: the u_j, evenly in the unit cube.
    """

    likelihood: TractableLikelihood
    places: Float[Array, "point dim_x"]

    def prepare(self, x):
        """Return w of every point in the cell of x."""
        space: Any = self.space_of_x()
        return jax.vmap(lambda u: space.forward(x, u))(self.places)

    def log_likelihood(self, theta, w):
        values = jax.vmap(lambda w: self.likelihood.log_likelihood(theta, w))(w)
        return logsumexp(values) - jnp.log(len(values))


def over_cells(likelihood: Any) -> Any:
    """Return the likelihood of cells for members of an ensemble, if the data have cells; any other as it is."""
    if not isinstance(likelihood, Ensemble | Mixture | Consensus):
        return likelihood
    space = likelihood.space_of_x()
    if space is None or not 0 < len(space.cells.which) <= MOST_CELLS:
        return likelihood
    from scipy.stats import qmc  # takes long to import, and few data are discrete

    places = qmc.Sobol(space.dim_x, rng=np.random.default_rng(0)).random(POINTS)
    return OverCells(likelihood, on_device(places))
