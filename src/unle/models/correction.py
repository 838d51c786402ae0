r"""Corrections of a linear-Gaussian fit: from its residuals r to v ~ N(0, I), given t.

`Straight` leaves the fit as it is; `Flex` bends mean and covariance by a network of t; `Chained` applies two in turn.
A polynomial that bends the mean alone, `Bend`, is in `unle.models.polynomial`, a Gaussian process of t in
`unle.models.gaussian_process`.
"""

import abc

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from unle.models.mlp import Mlp

MAX_LOG_SCALE = 9.0  # a conditional standard deviation may shrink or grow by e^9 against the linear fit


class AbstractCorrection(eqx.Module):
    """An invertible map of residuals, for each t."""

    @abc.abstractmethod
    def __call__(
        self, t: Float[Array, " dim"], r: Float[Array, " data"]
    ) -> tuple[Float[Array, " data"], Float[Array, ""]]:
        """Return v and log |dv / dr|."""

    @abc.abstractmethod
    def inverse(self, t: Float[Array, " dim"], v: Float[Array, " data"]) -> Float[Array, " data"]:
        """Return r."""


class Straight(AbstractCorrection):
    """No correction: v = r."""

    def __call__(self, t, r):
        """Return r itself."""
        return r, jnp.zeros((), r.dtype)

    def inverse(self, t, v):
        """Return v itself."""
        return v


class Flex(AbstractCorrection):
    r"""A network of t gives a mean m(t) and a lower-triangular precision factor T(t) with positive diagonal.

        v = T(t) (r - m(t))

    A network that outputs zero changes nothing.  Writing the factor of the *precision* makes the density, evaluated
    most often, free of triangular solves.

    Args:
        net: network of t with 2 k + k (k - 1) / 2 outputs: m, log diag T, and T below the diagonal by rows.
    """

    net: Mlp

    @staticmethod
    def outputs(dim_data: int) -> int:
        """Return how many numbers the network must give for data of length k."""
        return 2 * dim_data + dim_data * (dim_data - 1) // 2

    def __call__(self, t, r):
        """Return T(t) (r - m(t)) and log det T(t)."""
        mean, log_diagonal, factor = self._heads(t, r.shape[0])
        return factor @ (r - mean), jnp.sum(log_diagonal)

    def inverse(self, t, v):
        """Solve for r."""
        mean, _, factor = self._heads(t, v.shape[0])
        return mean + solve_triangular(factor, v, lower=True)

    def _heads(self, t, k: int):
        out = self.net(t)
        # Smooth saturation: a hard clip would stop the gradient of a scale that ran away.
        log_diagonal = MAX_LOG_SCALE * jnp.tanh(out[k : 2 * k] / MAX_LOG_SCALE)
        return out[:k], log_diagonal, below_diagonal(out[2 * k :], k) + jnp.diag(jnp.exp(log_diagonal))


class Chained(AbstractCorrection):
    """Two corrections in turn: the second corrects what the first leaves.

    Args:
        first: from r to its own v.
        second: from there to v.
    """

    first: AbstractCorrection
    second: AbstractCorrection

    def __call__(self, t, r):
        """Return the v of the second, and the sum of both logarithms."""
        between, log_det = self.first(t, r)
        v, more = self.second(t, between)
        return v, log_det + more

    def inverse(self, t, v):
        """Return r, the last correction first."""
        return self.first.inverse(t, self.second.inverse(t, v))


def below_diagonal(values: Float[Array, " entries"], k: int) -> Float[Array, "k k"]:
    """Return the (k, k) matrix with the given values below its diagonal, by rows, and zeros elsewhere.

    Numbers are fetched rather than put in their places, which is faster on a CPU, and quicker to compile.

    Example:
        >>> import jax.numpy as jnp
        >>> from unle.models.correction import below_diagonal
        >>> below_diagonal(jnp.array([1.0, 2.0, 3.0]), 3).tolist()
        [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [2.0, 3.0, 0.0]]
    """
    places = np.full((k, k), values.shape[0])  # of the zero that is appended
    places[np.tril_indices(k, -1)] = np.arange(values.shape[0])
    return jnp.append(values, 0.0)[places]
