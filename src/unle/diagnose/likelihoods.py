"""Likelihoods inside other likelihoods, and log-likelihoods of many data at many parameters.

A sequential run reports GivenValid(GivenValid(Consensus(ensemble), box), failures).  A check of its members, or of
their normalisers, needs the ensemble, and has to know how its members were combined.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unle.models import Consensus, Ensemble, GivenValid, Mixture, OverCells, Region, Tempered, TractableLikelihood
from unle.progress import progress

BLOCK = 25  # sets of data between two updates of the progress bar


class Members(NamedTuple):
    """The members of a likelihood, and how they are combined."""

    ensemble: Ensemble | Mixture  # with every member
    geometric: bool  # whether the likelihood is their geometric mean, rather than their mixture
    power: float  # to which it is raised; 1 for a posterior


def members_within(likelihood: Any) -> Members | None:
    """Return the members of a likelihood, None if it has none.

    Example:
        >>> from unle.models import TractableLikelihood
        >>> class Own(TractableLikelihood):
        ...     def prepare(self, x): return x
        ...     def log_likelihood(self, theta, w): return -((w - theta) ** 2).sum()
        >>> members_within(Own()) is None
        True
    """
    if isinstance(likelihood, GivenValid | OverCells):
        return members_within(likelihood.likelihood)
    if isinstance(likelihood, Tempered):
        inner = members_within(likelihood.likelihood)
        return None if inner is None else inner._replace(power=inner.power * float(likelihood.temperature))
    if isinstance(likelihood, Consensus):
        return Members(likelihood.members, geometric=True, power=1.0)
    if isinstance(likelihood, Ensemble | Mixture):
        return Members(likelihood, geometric=False, power=1.0)
    return None


def without_region(likelihood: TractableLikelihood) -> TractableLikelihood:
    """Return the likelihood of data without the box of parameters that a sequential run keeps to.

    The box is part of the prior of what was drawn, and must count once, however many data there are.
    """
    if not isinstance(likelihood, GivenValid):
        return likelihood
    inner = without_region(likelihood.likelihood)
    return inner if isinstance(likelihood.validity, Region) else GivenValid(inner, likelihood.validity)


def without_cells(likelihood: TractableLikelihood) -> TractableLikelihood:
    """Return the density of points, where the likelihood is that of the cells around them."""
    if isinstance(likelihood, OverCells):
        return likelihood.likelihood
    if isinstance(likelihood, GivenValid):
        return GivenValid(without_cells(likelihood.likelihood), likelihood.validity)
    return likelihood


def log_likelihood_table(likelihood: TractableLikelihood, theta: Any, data: Any) -> Float[np.ndarray, "data theta"]:
    """Return the log-likelihood of every data set, (m, rows, dim_x), at every theta; the rows of a set multiply."""
    thetas, sets = _single(theta, data)
    if len(sets) <= BLOCK:
        return np.asarray(_table(likelihood, thetas, sets), float)
    parts = []
    with progress("Likelihoods of simulated data", total=len(sets)) as bar:
        for start in range(0, len(sets), BLOCK):
            rows = np.arange(start, start + BLOCK) % len(sets)  # the last block is filled up: one compilation
            parts.append(np.asarray(_table(likelihood, thetas, sets[rows]), float)[: len(sets) - start])
            bar.advance(len(parts[-1]))
    return np.concatenate(parts)


def log_likelihood_pairs(likelihood: TractableLikelihood, theta: Any, data: Any) -> Float[np.ndarray, " n"]:
    """Return the log-likelihood of every data set at its own theta; arguments as above, n of each."""
    return np.asarray(_pairs(likelihood, *_single(theta, data)), float)


def log_likelihood_draws(likelihood: TractableLikelihood, theta: Any, data: Any) -> Float[np.ndarray, "n draw"]:
    """Return the log-likelihood of every data set at each of its own thetas, (n, draw, dim)."""
    return np.asarray(_draws(likelihood, *_single(theta, data)), float)


def member_log_likelihoods(ensemble: Ensemble | Mixture, theta: Any, rows: Any) -> Float[np.ndarray, "theta member"]:
    """Return every member's log-likelihood of all rows together, at every theta."""
    return np.asarray(_members(ensemble, *_single(theta, rows)), float)


def operations(likelihood: TractableLikelihood, theta: Any, rows: Any) -> float:
    """Return how many operations one log-likelihood of these rows takes: XLA's count, the same on every machine."""
    arrays, fixed = eqx.partition(likelihood, eqx.is_array)

    def value(arrays, theta, rows):
        likelihood = eqx.combine(arrays, fixed)
        return _of_rows(likelihood, theta, jax.vmap(likelihood.prepare)(rows))

    counted = jax.jit(value).lower(arrays, *_single(theta, rows)).cost_analysis() or {}
    return float(counted.get("flops", 0.0)) + float(counted.get("transcendentals", 0.0))


def _single(*values: Any) -> list[Array]:
    return [jnp.asarray(np.asarray(value), jnp.float32) for value in values]


@eqx.filter_jit
def _table(likelihood: TractableLikelihood, theta, data) -> Float[Array, "data theta"]:
    def given(rows):
        prepared = jax.vmap(likelihood.prepare)(rows)
        return jax.vmap(lambda theta: _of_rows(likelihood, theta, prepared))(theta)

    return jax.lax.map(given, data)


@eqx.filter_jit
def _pairs(likelihood: TractableLikelihood, theta, data) -> Float[Array, " n"]:
    return jax.vmap(lambda theta, rows: _of_rows(likelihood, theta, jax.vmap(likelihood.prepare)(rows)))(theta, data)


@eqx.filter_jit
def _draws(likelihood: TractableLikelihood, theta, data) -> Float[Array, "n draw"]:
    def given(item):
        thetas, rows = item
        prepared = jax.vmap(likelihood.prepare)(rows)
        return jax.vmap(lambda theta: _of_rows(likelihood, theta, prepared))(thetas)

    return jax.lax.map(given, (theta, data))


def _of_rows(likelihood: TractableLikelihood, theta, prepared) -> Float[Array, ""]:
    return jnp.sum(jax.vmap(lambda w: likelihood.log_likelihood(theta, w))(prepared))


@eqx.filter_jit
def _members(ensemble: Ensemble | Mixture, theta, rows):
    prepared = jax.vmap(ensemble.prepare)(rows)

    def at(theta):
        return jnp.sum(jax.vmap(lambda w: ensemble.member_log_likelihoods(theta, w))(prepared), axis=0)

    return jax.vmap(at)(theta)
