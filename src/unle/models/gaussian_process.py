"""Gaussian processes of theta as corrections of a linear fit."""

import equinox as eqx
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from unle.models.correction import AbstractCorrection


class Kernel(eqx.Module):
    r"""Features psi(t) of a squared-exponential kernel, in low rank.

        k(t, t') = exp(-|(t - t') / l|^2 / 2)  ~  psi(t)' psi(t'),    psi(t) = A' k(Z, t)

    Args:
        scales: the length scales l, one per parameter.
        centres: Z, some of the training parameters.
        projection: A, from the kernel at the centres to the features.
    """

    scales: Float[Array, " dim"]
    centres: Float[Array, "centre dim"]
    projection: Float[Array, "centre rank"]

    def features(self, t: Float[Array, " dim"]) -> Float[Array, " rank"]:
        """Return psi(t)."""
        squares = jnp.sum(jnp.square((t - self.centres) / self.scales), axis=1)
        return jnp.exp(-0.5 * squares) @ self.projection


class GaussianProcess(AbstractCorrection):
    r"""A Gaussian process with its predictive variance: the mean bends, and says where it is uncertain.

    Each direction y_k of the residuals r is a process with noise of variance n_k and a signal of variance c_k n_k.  The
    weights of its features psi(t) have the posterior mean W_k and the variances c_k n_k S_k:

        y = Q' r,    v = K (y - W' psi(t)) / sd(t),    sd_k(t)^2 = n_k (1 + c_k (1 - |psi(t)|^2 + S_k' psi(t)^2)).

    1 - |psi|^2 is the variance that the features leave out: far from all training parameters the process knows nothing,
    its mean is that of the linear fit, and its variance is largest.

    Args:
        kernel: of the parameters.
        rotation: Q, orthogonal; one column per direction.
        weights: W, one row per feature.
        remaining: S, one row per feature.
        noise: n.
        ratio: c.
        whitener: K, lower triangular.
    """

    kernel: Kernel
    rotation: Float[Array, "data data"]
    weights: Float[Array, "rank data"]
    remaining: Float[Array, "rank data"]
    noise: Float[Array, " data"]
    ratio: Float[Array, " data"]
    whitener: Float[Array, "data data"]

    def __call__(self, t, r):
        """Return v and log |dv / dr|."""
        mean, log_sd = self._predict(t)
        v = self.whitener @ ((r @ self.rotation - mean) * jnp.exp(-log_sd))
        return v, jnp.sum(jnp.log(jnp.diagonal(self.whitener))) - jnp.sum(log_sd)

    def inverse(self, t, v):
        """Return r."""
        mean, log_sd = self._predict(t)
        return self.rotation @ (mean + jnp.exp(log_sd) * solve_triangular(self.whitener, v, lower=True))

    def _predict(self, t):
        psi = self.kernel.features(t)
        unknown = jnp.maximum(1 - jnp.sum(jnp.square(psi)), 0.0) + jnp.square(psi) @ self.remaining
        return psi @ self.weights, 0.5 * jnp.log(self.noise * (1 + self.ratio * unknown))
