r"""A linear change of variables after which a sample has unit covariance.

With mean $\mu$ and covariance $\Sigma = L L^\top$ of the particles, $x = \mu + L z$. In the coordinates z one
step size fits all directions, so that kernels need no mass matrix.
"""

import equinox as eqx
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

# Added to the *correlation* matrix: keeps float32 Cholesky factors real for nearly degenerate samples, and
# still resolves directions whose widths differ by a factor of about 300.
RIDGE = 1e-5


class Whitening(eqx.Module):
    """The map x = mean + factor z; the factor L is lower triangular."""

    mean: Float[Array, " dim"]
    factor: Float[Array, "dim dim"]

    def colour(self, white: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """Map z to x."""
        return self.mean + self.factor @ white

    def whiten(self, position: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """Map x to z."""
        return solve_triangular(self.factor, position - self.mean, lower=True)


def fit_whitening(
    positions: Float[Array, "particle dim"], weights: Float[Array, " particle"] | None = None
) -> Whitening:
    """Take mean and covariance from a sample, with normalised weights or equal ones.

    The factor is finite and invertible for every sample, even one in which all points coincide.
    """
    n, dim = positions.shape
    weights = jnp.full(n, 1.0 / n) if weights is None else weights
    mean = weights @ positions
    centred = positions - mean
    covariance = (weights[:, None] * centred).T @ centred
    # The floor is about the spacing of float32 numbers of that size: a sample cannot be narrower than that.
    width = jnp.maximum(jnp.sqrt(jnp.diag(covariance)), 1e-6 * (1.0 + jnp.abs(mean)))
    correlation = covariance / jnp.outer(width, width)
    correlation = jnp.where(jnp.eye(dim, dtype=bool), 1.0 + RIDGE, correlation)
    factor = jnp.linalg.cholesky(correlation)
    factor = jnp.where(jnp.all(jnp.isfinite(factor)), factor, jnp.eye(dim))
    return Whitening(mean, width[:, None] * factor)
