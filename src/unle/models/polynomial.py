r"""Polynomials of theta: a mean that bends, fitted in closed form.

All monomials of t up to some degree, in the order 1, t_1 .. t_d, t_1 t_1, t_1 t_2, ..., so that a lower degree is a
prefix of a higher one.  Each monomial is an earlier one times one coordinate, which is also how they are computed:
products have smooth gradients everywhere, powers have not at zero.
"""

from itertools import combinations_with_replacement
from math import comb
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from unle.models.correction import AbstractCorrection


def monomial_count(dim: int, degree: int) -> int:
    """Return how many monomials of `dim` variables have at most this degree."""
    return comb(dim + degree, degree)


def monomials(t: Any, degree: int) -> Any:
    """Return the monomials of t, shape (..., dim), along the last axis; numpy or jax, as t is.

    Example:
        >>> import numpy as np
        >>> from unle.models.polynomial import monomials
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


class Bend(AbstractCorrection):
    r"""A polynomial correction of residuals r, and the whitening of what it leaves.

        v = K (r - C' phi(t)),

    phi(t) the monomials of t.  Outside the range of the training data a polynomial runs away, so t is held to it.

    Args:
        low: smallest training value of every coordinate of t.
        high: largest.
        coefficients: C, one row per monomial; rows of zeros beyond the degree that was chosen.
        whitener: K, lower triangular.
        degree: the highest degree there are coefficients for.
    """

    low: Float[Array, " dim"]
    high: Float[Array, " dim"]
    coefficients: Float[Array, "monomial data"]
    whitener: Float[Array, "data data"]
    degree: int = eqx.field(static=True)

    def __call__(self, t, r):
        """Return v and log det K."""
        return self.whitener @ (r - self._mean(t)), jnp.sum(jnp.log(jnp.diagonal(self.whitener)))

    def inverse(self, t, v):
        """Return r."""
        return self._mean(t) + solve_triangular(self.whitener, v, lower=True)

    def _mean(self, t):
        return monomials(jnp.clip(t, self.low, self.high), self.degree) @ self.coefficients
