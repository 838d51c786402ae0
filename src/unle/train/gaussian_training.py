r"""Conditional Gaussians as bases, the default: the simplest of several fits that describes the data as well as any.

Gaussians are fitted rung by rung:

1. A linear mean and polynomials with one covariance, in closed form (`unle.train.closed_form_fits`): with few data in
   many dimensions, or close to one observation, the best there is.
2. Gaussian processes, in closed form too: the best where data follow theta smoothly, and there are few simulations for
   the wiggles of the mean.
3. Networks of theta that bend mean and covariance of the linear fit: the best where the noise depends on theta.
4. Networks that do so with what the processes leave.  They are given up early where they are behind the third.

Each member of the ensemble trains on its own split.  A rung is climbed if the held-out likelihood rises by more than a
standard error; all members stand on the same one.
"""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from unle.compiling import LARGE_BATCH_OPTIONS, keys, large_program, on_device, split
from unle.models import AbstractCorrection, Chained, ConditionalGaussian, Mlp, NeuralCorrection, monomial_count
from unle.train.base_training import AbstractBaseTraining
from unle.train.closed_form_fits import Mean, Means, Processes, fit_means, fit_processes, highest_degree
from unle.train.loop import Best, Fit, Look, Patience, Weights, adamw, run, take_chunk
from unle.train.rows import Rows, Splits, batch_size, held_out_size, step_count
from unle.train.validation import is_better, simplest_as_good

SHARE_OF_GAIN = 0.5  # of processes over linear fits: networks that have less after a part of training do not win
SMALLEST_IMPROVEMENT = 0.005  # nats; a fit that improves by less for long is over
EARLY_SHARE = 0.1  # share of the training after which networks are compared with their rival


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
        >>> from unle.train.gaussian_training import batch_for
        >>> [batch_for(rows) for rows in (500, 1_000, 1_500, 2_000, 100_000)]
        [128, 128, 192, 256, 256]
    """
    return round(128 * min(2.0, max(1.0, rows / 1000)))


def decay_for(rows: int) -> float:
    """Return the weight decay for so many rows: as it is with many, and up to twice that where there are few.

    Example:
        >>> from unle.train.gaussian_training import decay_for
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


class Start(NamedTuple):
    """What networks begin with, and have to beat: linear fits, and their log-likelihood of each held-out row."""

    linear: Mean
    scores: Float[np.ndarray, "member held_out"]


class Rival(NamedTuple):
    """Another fit, which networks are compared with after a part of their training."""

    scores: Float[np.ndarray, "member held_out"]  # its log-likelihood of each held-out row
    # of the rival's gain over the start, which networks must have by then; more than all of it if None, and beyond
    # doubt
    share: float | None = None

    def wins(self, start: Float[np.ndarray, "member held_out"], early: Float[np.ndarray, "member held_out"]) -> bool:
        """Return whether networks that have come so far are to be given up."""
        if self.share is None:
            return not is_better(early, self.scores)
        return bool(np.mean(early - start) < self.share * np.mean(self.scores - start))


class Networks(NamedTuple):
    """Trained networks."""

    net: Mlp  # of every member, stacked; zero if nothing was better than the start
    scores: Float[np.ndarray, "member held_out"]  # log-likelihood of each held-out row
    early: Float[np.ndarray, "member held_out"]  # the same after a part of the training
    finished: bool = True  # False if they were given up then


def train_networks(
    key: PRNGKeyArray, start: Start, rows: Rows, *, settings: GaussianTraining, rival: Rival | None = None
) -> Networks:
    """Train one network per member, to correct linear fits.

    Settings have steps and batch for so many rows (`GaussianTraining.for_rows`).  Networks that are behind a rival
    after a part of their training are given up.
    """
    key_init, key_train = split(key, 2)
    bases, fit = _start(key_init, start, rows, settings)

    def chunk(state: _Progress, key: PRNGKeyArray, number: int) -> tuple[_Progress, Look]:
        data = state.rows.renewed(settings.chunk * batch) if number else state.rows
        fit = _chunk(state.fit, bases, *data.table, keys(key, rows.members), settings)
        score, early, is_behind = float(np.mean(np.asarray(fit.best.score))), state.early, False
        if early is None and (number + 1) * settings.chunk >= EARLY_SHARE * settings.iterations:
            early = np.asarray(fit.best.rows)[:, : rows.n_held_out]
            is_behind = rival is not None and rival.wins(start.scores, early)
        look = Look(score, f"held-out log-likelihood {score:.2f}", is_over=is_behind)
        return _Progress(fit, data, early, is_behind), look

    batch, chunks = _batch(settings), split(key_train, -(-settings.iterations // settings.chunk))
    patience, title = Patience(settings.patience, SMALLEST_IMPROVEMENT), "Fitting the Gaussian base"
    end = run(chunk, _Progress(fit, rows), chunks, steps=settings.chunk, patience=patience, title=title).state
    scores = np.asarray(end.fit.best.rows)[:, : rows.n_held_out]
    return Networks(end.fit.best.trained, scores, scores if end.early is None else end.early, not end.is_behind)


class _Progress(NamedTuple):
    fit: Fit
    rows: Rows  # a window on them that changes
    early: Float[np.ndarray, "member held_out"] | None = None
    is_behind: bool = False  # of its rival


def _batch(settings: GaussianTraining) -> int:
    assert settings.batch is not None  # `for_rows` has chosen one
    return settings.batch


def _optimiser(settings: GaussianTraining) -> optax.GradientTransformation:
    assert settings.weight_decay is not None  # `for_rows` has chosen one
    adam = adamw(settings.learning_rate, settings.iterations, weight_decay=settings.weight_decay)
    return optax.flatten(adam)  # one long vector is quicker to compile


def _scores(net: Mlp, base: ConditionalGaussian, t, w) -> Float[Array, " row"]:
    model = eqx.tree_at(lambda b: b.correction.net, base, net)
    return jax.vmap(model.log_density)(t, w)


def _start(key: PRNGKeyArray, start: Start, data: Rows, settings: GaussianTraining) -> tuple[ConditionalGaussian, Fit]:
    """Return the linear fit with networks that are nearly zero, and its scores: the networks have to beat them.

    Everything is made on the host: there is nothing to compile.
    """
    dtype, (members, length) = data.t.dtype, data.splits.held_out.shape
    nets = settings.nets(key, data.t.shape[1], data.w.shape[-1], members=members)
    linear = (on_device(part, dtype) for part in start.linear)
    bases = bend(nets, *linear)
    rows = on_device(np.stack([np.resize(row, length) for row in start.scores]), dtype)
    optimiser = _zeros(jax.eval_shape(eqx.filter_vmap(_optimiser(settings).init), nets))  # Adam starts from zeros
    score = on_device(start.scores.mean(axis=1), dtype)
    return bases, Fit(Weights(nets, optimiser, nets), Best(_zeros(nets), score, rows))


@eqx.filter_jit
@eqx.filter_vmap
def bend(net: Mlp, offset, slope, whitener) -> ConditionalGaussian:
    """Return linear fits that networks correct."""
    return ConditionalGaussian(offset, slope, whitener, NeuralCorrection(net))


def _zeros(tree):
    return jax.tree.map(lambda leaf: on_device(np.zeros(leaf.shape), leaf.dtype), tree)


@partial(large_program, options=LARGE_BATCH_OPTIONS)
def _chunk(state: Fit, bases, t, w, splits: Splits, keys, settings: GaussianTraining) -> Fit:
    batch = _batch(settings)

    def one_member(state: Fit, base, w, train, held_out, key) -> Fit:
        def loss(net, numbers):
            rows = train[numbers]
            return -jnp.mean(_scores(net, base, t[rows], w[rows]))

        def score(net):
            return _scores(net, base, t[held_out], w[held_out])

        # All random numbers at once: every call of the generator takes a while to compile.
        numbers = jr.bits(key, (settings.chunk * batch,)).reshape(-1, batch) % train.shape[0]
        return take_chunk(_optimiser(settings), state, loss, numbers, score, average=settings.average)[0]

    own = None if w.ndim == t.ndim else 1  # the axis of members, if each has data of its own
    each = eqx.filter_vmap(one_member, in_axes=(0, 0, own, 0, 0, 0))
    return each(state, bases, w, splits.train, splits.held_out, keys)
