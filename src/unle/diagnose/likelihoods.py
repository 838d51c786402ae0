"""Log-likelihoods of many data at many parameters, on the host in double precision."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unle.models import TractableLikelihood


def at_every(likelihood: TractableLikelihood, theta: Any, data: Any) -> Float[np.ndarray, "data theta"]:
    """Return the log-likelihood of every data set at every theta.

    Args:
        likelihood: up to a constant.
        theta: parameters, (n, dim).
        data: sets of rows, (m, rows, dim_x); the rows of a set multiply.
    """
    return np.asarray(_at_every(likelihood, _single(theta), _single(data)), float)


def at_own(likelihood: TractableLikelihood, theta: Any, data: Any) -> Float[np.ndarray, " n"]:
    """Return the log-likelihood of every data set at its own theta; arguments as in `at_every`, n of each."""
    return np.asarray(_at_own(likelihood, _single(theta), _single(data)), float)


def _single(values: Any) -> Array:
    return jnp.asarray(np.asarray(values), jnp.float32)


@eqx.filter_jit
def _at_every(likelihood: TractableLikelihood, theta, data) -> Float[Array, "data theta"]:
    def given(rows):
        prepared = jax.vmap(likelihood.prepare)(rows)
        return jax.vmap(lambda theta: _of_rows(likelihood, theta, prepared))(theta)

    return jax.lax.map(given, data)


@eqx.filter_jit
def _at_own(likelihood: TractableLikelihood, theta, data) -> Float[Array, " n"]:
    return jax.vmap(lambda theta, rows: _of_rows(likelihood, theta, jax.vmap(likelihood.prepare)(rows)))(theta, data)


def _of_rows(likelihood: TractableLikelihood, theta, prepared) -> Float[Array, ""]:
    return jnp.sum(jax.vmap(lambda w: likelihood.log_likelihood(theta, w))(prepared))
