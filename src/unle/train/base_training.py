r"""How the base of a tilted model comes about: a fixed measure, a fitted flow, or conditional Gaussians, the default.

Gaussians are fitted rung by rung:

1. A linear mean and polynomials with one covariance, in closed form (`unle.train.gaussian_fits`): with few data in many
   dimensions, or close to one observation, the best there is.
2. Gaussian processes, in closed form too (`unle.train.gaussian_process_fit`): the best where data follow theta
   smoothly, and there are few simulations for the wiggles of the mean.
3. Networks of theta that bend mean and covariance of the linear fit (`unle.train.gaussian_fits`): the best where the
   noise depends on theta.
4. Networks that do so with what the processes leave.  They are given up early where they are behind the third.

Each member of the ensemble trains on its own split.  A rung is climbed if the held-out likelihood rises by more than a
standard error; all members stand on the same one.
"""

import abc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unle.models import (
    AbstractBase,
    AbstractCorrection,
    AbstractFlow,
    Chained,
    ConditionalGaussian,
    FixedMeasure,
    Flow,
    Maf,
    Mlp,
    NeuralCorrection,
    monomial_count,
)
from unle.space.host_device import on_device, split
from unle.train.gaussian_fits import Mean, Means, Rival, Start, bend, fit_means, highest_degree, train_networks
from unle.train.gaussian_process_fit import Processes, fit_processes
from unle.train.loop import Descended, Descent, descend
from unle.train.rows import Rows, batch_size, held_out_size, step_count
from unle.train.validation import is_better, simplest_as_good

SHARE_OF_GAIN = 0.5  # of processes over linear fits: networks that have less after a part of training do not win


class AbstractBaseTraining(eqx.Module):
    """Make one base per ensemble member."""

    @abc.abstractmethod
    def fit(self, key: PRNGKeyArray, rows: Rows, *, capacity: int | None = None) -> AbstractBase:
        """Return the members' bases, every array stacked along a leading axis.

        Args:
            key: randomness of the fit.
            rows: standardised simulations.
            capacity: rows that there will be in the end, when more are to come: fits up to there compile once.
        """

    def untrained(self, dim_theta: int, dim_data: int, *, members: int) -> AbstractBase | None:
        """Return bases with the structure and the shapes that `fit` will most likely return; None if that is open.

        What comes after the fit can then be compiled while it runs.
        """
        return None

    def work_per_row(self, dim: int) -> int:
        """Return how many numbers in double precision the fit needs per row of `dim` parameters, besides the row."""
        return 0


class FixedBase(AbstractBaseTraining):
    """The wide Gaussian measure of the original AUNLE: the energy learns everything.

    Args:
        scale: standard deviation of the measure on standardised data.
    """

    scale: float = 10.0

    def fit(self, key, rows, *, capacity=None):
        one = FixedMeasure(jnp.zeros(rows.w.shape[1]), jnp.asarray(self.scale, rows.w.dtype))
        return jax.tree.map(lambda leaf: jnp.stack([leaf] * rows.members), one)


class FlowTraining(AbstractBaseTraining):
    """Fit a flow per ensemble member, each on its own split.

    Args:
        flow: its design, `Maf()` or `SplineFlow()`.
        descent: how it is trained.
    """

    flow: AbstractFlow = Maf()
    descent: Descent = Descent()

    def fit(self, key, rows, *, capacity=None):
        return self.fit_flows(key, rows.padded(capacity))[0]

    def fit_flows(
        self, key: PRNGKeyArray, rows: Rows, *, on_chunk: Callable[[dict[str, Any]], None] | None = None
    ) -> tuple[Flow, Descended]:
        """Return the members' flows, stacked, and how training went."""
        key_start, key_descent = jr.split(key)
        flows = _initial(jr.split(key_start, rows.members), self.flow, rows.t.shape[1], rows.w.shape[1])
        arrays, static = eqx.partition(flows, eqx.is_array)
        loss, title = negative_log_likelihood, "Fitting the flow"
        end = descend(key_descent, loss, arrays, static, rows, settings=self.descent, title=title, on_chunk=on_chunk)
        return eqx.combine(end.trained, static), end


@eqx.filter_jit
def _initial(keys, design: AbstractFlow, dim_theta: int, dim_data: int) -> Flow:
    return eqx.filter_vmap(lambda key: design.initial(key, dim_theta, dim_data))(keys)


def negative_log_likelihood(key, trained, fixed, t, w):
    """Return -mean log q(w | t); nothing about it is random."""
    flow = eqx.combine(trained, fixed)
    return -jnp.mean(jax.vmap(flow.log_density)(t, w))


class GaussianTraining(AbstractBaseTraining):
    """Fit a `ConditionalGaussian` per member: a regression in closed form, or a network.

    Args:
        width: units per hidden layer.
        depth: hidden layers.
        iterations: optimiser steps; up to four times as many where there are more than four rows for each.
        batch: rows per step, at least: one in forty where that is more (fewer if there are fewer); None for that which
            suits the number of rows, see `batch_for`.
        learning_rate: peak of the cosine schedule.
        weight_decay: decoupled weight decay; None for that which suits the number of rows, see `decay_for`.
        average: decay of the running mean of the weights that is validated and returned.
        chunk: steps between validations.
        patience: chunks without an improvement worth the time, after which the fit stops.
    """

    width: int = eqx.field(static=True, default=64)
    depth: int = eqx.field(static=True, default=5)
    iterations: int = eqx.field(static=True, default=1500)
    batch: int | None = eqx.field(static=True, default=None)
    learning_rate: float = eqx.field(static=True, default=0.03)
    weight_decay: float | None = eqx.field(static=True, default=None)
    average: float = eqx.field(static=True, default=0.98)
    chunk: int = eqx.field(static=True, default=50)
    patience: int = eqx.field(static=True, default=10)

    def fit(self, key, rows, *, capacity=None):
        return fit_gaussians(key, rows, settings=self, capacity=capacity)[0]

    def untrained(self, dim_theta, dim_data, *, members):
        """Return Gaussians that a network bends: with enough data that is what it comes to."""
        shapes = (dim_data,), (dim_theta, dim_data), (dim_data, dim_data)
        linear = (on_device(np.zeros((members, *shape))) for shape in shapes)
        return bend(self.nets(jr.key(0), dim_theta, dim_data, members=members), *linear)

    def nets(self, key: PRNGKeyArray, dim_theta: int, dim_data: int, *, members: int) -> Mlp:
        """Return networks that are nearly zero, stacked along a leading axis."""
        sizes = {"width": self.width, "depth": self.depth, "output_scale": 0.01}
        return Mlp.stacked(key, members, dim_theta, NeuralCorrection.outputs(dim_data), **sizes)

    def for_rows(self, rows: int, *, in_all: int = 0) -> "GaussianTraining":
        """Return settings with steps, batch and decay for so many rows; patience lasts for the same share of steps.

        `in_all` is how many there are, if these are a window on more.
        """
        iterations = step_count(self.iterations, rows)
        most = max(rows, in_all)
        batch = batch_for(most) if self.batch is None else self.batch
        decay = decay_for(most) if self.weight_decay is None else self.weight_decay
        chunk = round(self.chunk * iterations / self.iterations)
        return replace(self, iterations=iterations, batch=batch_size(batch, rows), chunk=chunk, weight_decay=decay)

    def work_per_row(self, dim: int) -> int:
        """Return three times the monomials: all rows, and the training rows in the two factors of a product."""
        return 3 * monomial_count(dim, highest_degree(dim))


def batch_for(rows: int) -> int:
    """Return the smallest batch for so many rows: smaller where there are few, for its noise keeps a network simple.

    Example:
        >>> from unle.train.base_training import batch_for
        >>> [batch_for(rows) for rows in (500, 1_000, 1_500, 2_000, 100_000)]
        [128, 128, 192, 256, 256]
    """
    return round(128 * min(2.0, max(1.0, rows / 1000)))


def decay_for(rows: int) -> float:
    """Return the weight decay for so many rows: as it is with many, and up to twice that where there are few.

    Example:
        >>> from unle.train.base_training import decay_for
        >>> [round(decay_for(rows), 3) for rows in (500, 1_000, 1_500, 2_000, 100_000)]
        [0.1, 0.1, 0.075, 0.05, 0.05]
    """
    return 0.05 * min(2.0, max(1.0, 3.0 - rows / 1000))


def fit_gaussians(
    key: PRNGKeyArray, rows: Rows, *, settings: GaussianTraining, capacity: int | None = None
) -> tuple[ConditionalGaussian, Float[Array, " member"]]:
    """Return one conditional Gaussian per member, stacked, and the held-out log-likelihood per row of each.

    Closed forms are fitted to the first window of a stream.  For `capacity` see `AbstractBaseTraining.fit`.
    """
    t, w, splits = rows.table
    one_shape, in_all = capacity is not None, 0 if rows.stream is None else rows.stream.size
    means = fit_means(np.asarray(t), np.asarray(w), splits, one_shape=one_shape)
    volumes = means.linear.log_volumes
    processes = None if rows.stream is not None else _processes(means, rows, one_shape=one_shape)
    settings = settings.for_rows(max(splits.train.shape[1], _trained(capacity)), in_all=in_all)
    # One program trains both kinds of networks, those that correct linear fits and those that correct processes.
    if processes is not None or one_shape:
        w = jnp.repeat(w[:, None], len(volumes), axis=1)
    start = Start(means.linear, means.linear_scores)
    below = None if processes is None else Rival(processes.scores + volumes, share=SHARE_OF_GAIN)
    networks = train_networks(key, start, rows._replace(w=w).padded(capacity), settings=settings, rival=below)
    rungs: list[tuple[AbstractCorrection, np.ndarray]] = [(means.correction, means.scores)]
    if processes is not None:
        rungs.append((processes.correction, processes.scores + volumes))
    if networks.finished:
        rungs.append((NeuralCorrection(networks.net), networks.scores))
    if processes is not None:
        left = Start(_nothing(*means.linear.slope.shape), processes.scores - processes.log_dets)
        ahead = networks.finished and simplest_as_good([scores for _, scores in rungs[1:]])
        rival = Rival(networks.early - processes.log_dets - volumes if ahead else left.scores)
        residuals = rows._replace(w=on_device(np.swapaxes(processes.v, 0, 1), w.dtype)).padded(capacity)
        on_top = train_networks(split(key, 3)[2], left, residuals, settings=settings, rival=rival)
        if on_top.finished:
            both = Chained(processes.correction, NeuralCorrection(on_top.net))
            rungs.append((both, on_top.scores + processes.log_dets + volumes))
    correction, scores = rungs[simplest_as_good([scores for _, scores in rungs])]
    offset, slope, whitener = (on_device(part, t.dtype) for part in means.linear)
    bases = eqx.filter_vmap(ConditionalGaussian)(offset, slope, whitener, correction)
    return bases, on_device(scores.mean(1), t.dtype)


def _trained(capacity: int | None) -> int:
    """Return how many rows a member trains on when there are as many as there will be."""
    return 0 if capacity is None else capacity - held_out_size(capacity)


def _processes(means: Means, rows: Rows, *, one_shape: bool) -> Processes | None:
    """Fit Gaussian processes to the residuals of linear fits; None if they are not better than the closed form."""
    t, w = np.asarray(rows.t, float), np.asarray(rows.w, float)
    r = np.stack([(w - offset - t @ slope) @ whitener.T for offset, slope, whitener in zip(*means.linear, strict=True)])
    processes = fit_processes(t, r, rows.splits, one_shape=one_shape)
    if processes is None or not is_better(processes.scores + means.linear.log_volumes, means.scores):
        return None
    return processes


def _nothing(members: int, dim: int, k: int) -> Mean:
    """Return linear fits that leave data as they are."""
    return Mean(np.zeros((members, k)), np.zeros((members, dim, k)), np.tile(np.eye(k), (members, 1, 1)))
