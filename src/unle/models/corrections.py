r"""Corrections of a linear-Gaussian fit: from its residuals r to v ~ N(0, I), given t.

* `NoCorrection` leaves the fit as it is.
* `PolynomialMean` bends the mean by a polynomial of t, fitted in closed form.
* `GaussianProcess` bends the mean by a Gaussian process of t, and widens where it is uncertain.
* `NeuralCorrection` bends mean and covariance by a network of t.
* `Chained` applies two in turn.
"""

import abc
from itertools import combinations_with_replacement
from math import comb
from typing import Any

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


class NoCorrection(AbstractCorrection):
    """No correction: v = r."""

    def __call__(self, t, r):
        return r, jnp.zeros((), r.dtype)

    def inverse(self, t, v):
        return v


class PolynomialMean(AbstractCorrection):
    """A polynomial correction of residuals r, and the whitening of what it leaves.

        v = K (r - C' phi(t)),

    phi(t) the monomials of t.  Outside the range of the training data a polynomial runs away, so t is held to it.
    """

    low: Float[Array, " dim"]  # smallest training value of every coordinate of t
    high: Float[Array, " dim"]  # largest
    # C, one row per monomial; rows of zeros beyond the degree that was chosen
    coefficients: Float[Array, "monomial data"]
    whitener: Float[Array, "data data"]  # K, lower triangular
    degree: int = eqx.field(static=True)  # the highest degree there are coefficients for

    def __call__(self, t, r):
        return self.whitener @ (r - self._mean(t)), jnp.sum(jnp.log(jnp.diagonal(self.whitener)))

    def inverse(self, t, v):
        return self._mean(t) + solve_triangular(self.whitener, v, lower=True)

    def _mean(self, t):
        return monomials(jnp.clip(t, self.low, self.high), self.degree) @ self.coefficients


class Kernel(eqx.Module):
    """Features psi(t) of a squared-exponential kernel, in low rank.

    k(t, t') = exp(-|(t - t') / l|^2 / 2)  ~  psi(t)' psi(t'),    psi(t) = A' k(Z, t)
    """

    scales: Float[Array, " dim"]  # the length scales l, one per parameter
    centres: Float[Array, "centre dim"]  # Z, some of the training parameters
    projection: Float[Array, "centre rank"]  # A, from the kernel at the centres to the features

    def features(self, t: Float[Array, " dim"]) -> Float[Array, " rank"]:
        """Return psi(t)."""
        squares = jnp.sum(jnp.square((t - self.centres) / self.scales), axis=1)
        return jnp.exp(-0.5 * squares) @ self.projection


class GaussianProcess(AbstractCorrection):
    """A Gaussian process with its predictive variance: the mean bends, and says where it is uncertain.

    Each direction y_k of the residuals r is a process with noise of variance n_k and a signal of variance c_k n_k.  The
    weights of its features psi(t) have the posterior mean W_k and the variances c_k n_k S_k:

        y = Q' r,    v = K (y - W' psi(t)) / sd(t),    sd_k(t)^2 = n_k (1 + c_k (1 - |psi(t)|^2 + S_k' psi(t)^2)).

    1 - |psi|^2 is the variance that the features leave out: far from all training parameters the process knows nothing,
    its mean is that of the linear fit, and its variance is largest.
    """

    kernel: Kernel  # of the parameters
    rotation: Float[Array, "data data"]  # Q, orthogonal; one column per direction
    weights: Float[Array, "rank data"]  # W, one row per feature
    remaining: Float[Array, "rank data"]  # S, one row per feature
    noise: Float[Array, " data"]  # n
    ratio: Float[Array, " data"]  # c
    whitener: Float[Array, "data data"]  # K, lower triangular

    def __call__(self, t, r):
        mean, log_sd = self._predict(t)
        v = self.whitener @ ((r @ self.rotation - mean) * jnp.exp(-log_sd))
        return v, jnp.sum(jnp.log(jnp.diagonal(self.whitener))) - jnp.sum(log_sd)

    def inverse(self, t, v):
        mean, log_sd = self._predict(t)
        return self.rotation @ (mean + jnp.exp(log_sd) * solve_triangular(self.whitener, v, lower=True))

    def _predict(self, t):
        psi = self.kernel.features(t)
        unknown = jnp.maximum(1 - jnp.sum(jnp.square(psi)), 0.0) + jnp.square(psi) @ self.remaining
        return psi @ self.weights, 0.5 * jnp.log(self.noise * (1 + self.ratio * unknown))


class NeuralCorrection(AbstractCorrection):
    """A network of t gives a mean m(t) and a lower-triangular precision factor T(t) with positive diagonal.

        v = T(t) (r - m(t))

    A network that outputs zero changes nothing.  Writing the factor of the *precision* makes the density, evaluated
    most often, free of triangular solves.
    """

    net: Mlp  # network of t with 2 k + k (k - 1) / 2 outputs: m, log diag T, and T below the diagonal by rows

    @staticmethod
    def outputs(dim_data: int) -> int:
        """Return how many numbers the network must give for data of length k."""
        return 2 * dim_data + dim_data * (dim_data - 1) // 2

    def __call__(self, t, r):
        mean, log_diagonal, factor = self._heads(t, r.shape[0])
        return factor @ (r - mean), jnp.sum(log_diagonal)

    def inverse(self, t, v):
        mean, _, factor = self._heads(t, v.shape[0])
        return mean + solve_triangular(factor, v, lower=True)

    def _heads(self, t, k: int):
        out = self.net(t)
        # Smooth saturation: a hard clip would stop the gradient of a scale that ran away.
        log_diagonal = MAX_LOG_SCALE * jnp.tanh(out[k : 2 * k] / MAX_LOG_SCALE)
        return out[:k], log_diagonal, below_diagonal(out[2 * k :], k) + jnp.diag(jnp.exp(log_diagonal))


class Chained(AbstractCorrection):
    """Two corrections in turn: the second corrects what the first leaves."""

    first: AbstractCorrection
    second: AbstractCorrection

    def __call__(self, t, r):
        between, log_det = self.first(t, r)
        v, more = self.second(t, between)
        return v, log_det + more

    def inverse(self, t, v):
        return self.first.inverse(t, self.second.inverse(t, v))


def monomial_count(dim: int, degree: int) -> int:
    """Return how many monomials of `dim` variables have at most this degree."""
    return comb(dim + degree, degree)


def monomials(t: Any, degree: int) -> Any:
    """Return the monomials of t, shape (..., dim), along the last axis; numpy or jax, as t is.

    Their order is 1, t_1 .. t_d, t_1 t_1, t_1 t_2, ...: a lower degree is a prefix of a higher one.  Each is an earlier
    one times a coordinate: products have smooth gradients everywhere, powers have not at zero.

    Example:
        >>> import numpy as np
        >>> from unle.models.corrections import monomials
        >>> monomials(np.array([2.0, 3.0]), 2).tolist()
        [1.0, 2.0, 3.0, 4.0, 6.0, 9.0]
    """
    library = np if isinstance(t, np.ndarray) else jnp
    dim = t.shape[-1]
    levels = [library.ones_like(t[..., :1]), t]
    of_level = [(i,) for i in range(dim)]
    for p in range(2, degree + 1):
        wanted = list(combinations_with_replacement(range(dim), p))
        place = {which: i for i, which in enumerate(of_level)}
        parents = np.array([place[which[:-1]] for which in wanted])
        last = np.array([which[-1] for which in wanted])
        levels.append(levels[-1][..., parents] * t[..., last])
        of_level = wanted
    return library.concatenate(levels[: degree + 1], axis=-1)


def below_diagonal(values: Float[Array, " entries"], k: int) -> Float[Array, "k k"]:
    """Return the (k, k) matrix with the given values below its diagonal, by rows, and zeros elsewhere.

    Numbers are fetched rather than scattered, which is faster on a CPU, and quicker to compile.

    Example:
        >>> import jax.numpy as jnp
        >>> from unle.models.corrections import below_diagonal
        >>> below_diagonal(jnp.array([1.0, 2.0, 3.0]), 3).tolist()
        [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [2.0, 3.0, 0.0]]
    """
    indices = np.full((k, k), values.shape[0])  # of the zero that is appended
    indices[np.tril_indices(k, -1)] = np.arange(values.shape[0])
    return jnp.append(values, 0.0)[indices]
