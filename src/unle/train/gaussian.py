r"""Fit conditional Gaussians, the bases of residual energies, rung by rung.

The first rungs are a linear and polynomial means with one covariance, in closed form (`unle.train.regression`); with
few data in many dimensions, or close to one observation, they are the best there is.  The last lets a network of theta
bend both the mean and the covariance of the linear fit.  Each member of the ensemble trains on its own split and keeps
the point of its training with the best likelihood on its held-out rows.  If the networks do not beat the closed form
by more than a standard error of the held-out likelihood, all members take the closed form.
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

from unle.compiling import SEARCHING, large_program
from unle.models import ConditionalGaussian, Flex, Mlp
from unle.models.polynomial import monomial_count
from unle.progress import progress
from unle.space.transfer import keys, on_device, split
from unle.train.base_training import AbstractBaseTraining
from unle.train.regression import Means, fit_means, highest_degree
from unle.train.splits import Splits, batch_size, pad, step_count
from unle.train.stream import Stream, put

CLIP = 5.0  # global norm of a gradient
WORTHWHILE = 0.005  # nats; a fit that improves by less for long is over


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

    def fit(self, key, t, w, splits, *, capacity=None, stream=None):
        """Fit the members' Gaussians."""
        return fit_gaussians(key, t, w, splits, settings=self, capacity=capacity, stream=stream)[0]

    def untrained(self, dim_theta, dim_data, *, members):
        """Return Gaussians that a network bends: with enough data that is what it comes to."""
        shapes = (dim_data,), (dim_theta, dim_data), (dim_data, dim_data)
        linear = (on_device(np.zeros((members, *shape))) for shape in shapes)
        return _bases(self.nets(jr.key(0), dim_theta, dim_data, members=members), *linear)

    def nets(self, key: PRNGKeyArray, dim_theta: int, dim_data: int, *, members: int) -> Mlp:
        """Return networks that are nearly zero, stacked along a leading axis."""
        sizes = {"width": self.width, "depth": self.depth, "output_scale": 0.01}
        return Mlp.stacked(key, members, dim_theta, Flex.outputs(dim_data), **sizes)

    def for_rows(self, rows: int, *, in_all: int = 0) -> "GaussianTraining":
        """Return settings with steps, batch and decay for so many rows; patience lasts for the same share of steps.

        Args:
            rows: that there are at a time.
            in_all: that there are, if these are a window on more.
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
        >>> from unle.train.gaussian import batch_for
        >>> [batch_for(rows) for rows in (500, 1_000, 1_500, 2_000, 100_000)]
        [128, 128, 192, 256, 256]
    """
    return round(128 * min(2.0, max(1.0, rows / 1000)))


def decay_for(rows: int) -> float:
    """Return the weight decay for so many rows: as it is with many, and up to twice that where there are few.

    Example:
        >>> from unle.train.gaussian import decay_for
        >>> [round(decay_for(rows), 3) for rows in (500, 1_000, 1_500, 2_000, 100_000)]
        [0.1, 0.1, 0.075, 0.05, 0.05]
    """
    return 0.05 * min(2.0, max(1.0, 3.0 - rows / 1000))


def fit_gaussians(
    key: PRNGKeyArray,
    t: Float[Array, "n dim"],
    w: Float[Array, "n data"],
    splits: Splits,
    *,
    settings: GaussianTraining,
    capacity: int | None = None,
    stream: Stream | None = None,
) -> tuple[ConditionalGaussian, Float[Array, " member"]]:
    """Fit one conditional Gaussian per split.

    Args:
        key: randomness of weights and batches.
        t: standardised parameters.
        w: standardised data.
        splits: training and held-out rows of every member.
        settings: of the network.
        capacity: rows that there will be in the end; see `AbstractBaseTraining.fit`.
        stream: where other training rows come from, likewise; the closed form is fitted to the first window.

    Returns:
        The members, stacked along a leading axis, and the held-out log-likelihood per row of each.
    """
    members, held = splits.train.shape[0], splits.held_out.shape[1]
    means = fit_means(np.asarray(t), np.asarray(w), splits, one_shape=capacity is not None)
    t, w, splits = pad(t, w, splits, capacity)
    settings = settings.for_rows(splits.train.shape[1], in_all=0 if stream is None else stream.size)
    key_init, key_train = split(key, 2)
    bases, state = _start(key_init, means, t, w, splits, settings)
    best, since = -np.inf, 0
    with progress("Fitting the Gaussian base", total=settings.iterations) as bar:
        for i, key_chunk in enumerate(split(key_train, -(-settings.iterations // settings.chunk))):
            if stream is not None and i:
                fresh = stream.take(settings.chunk * _batch(settings))
                t, w = put((t, w), fresh.places, (fresh.t, fresh.w))
            state = _chunk(state, bases, t, w, splits, keys(key_chunk, members), settings)
            score = float(np.mean(np.asarray(state.best_score)))
            bar.advance(settings.chunk, note=f"held-out log-likelihood {score:.2f}")
            best, since = (score, 0) if score > best + WORTHWHILE else (best, since + 1)
            if since >= settings.patience:
                break
    rows = np.asarray(state.best_rows)[:, :held]
    difference = np.ravel(rows - means.scores)
    if np.mean(difference) > np.std(difference) / np.sqrt(len(difference)):
        return eqx.tree_at(lambda b: b.correction.net, bases, state.best), on_device(rows.mean(1), rows.dtype)
    alone = eqx.tree_at(lambda b: b.correction, bases, means.correction)
    return alone, on_device(means.scores.mean(1), t.dtype)


class _Fit(NamedTuple):
    net: Mlp
    optimiser: optax.OptState
    average: Mlp
    best: Mlp
    best_score: Float[Array, " member"]
    best_rows: Float[Array, "member held_out"]


def _batch(settings: GaussianTraining) -> int:
    assert settings.batch is not None  # `for_rows` has chosen one
    return settings.batch


def _optimiser(settings: GaussianTraining) -> optax.GradientTransformation:
    assert settings.weight_decay is not None  # `for_rows` has chosen one
    schedule = optax.cosine_decay_schedule(settings.learning_rate, settings.iterations)
    adam = optax.adamw(schedule, weight_decay=settings.weight_decay)
    return optax.flatten(optax.chain(optax.clip_by_global_norm(CLIP), adam))  # one long vector is quicker to compile


def _scores(net: Mlp, base: ConditionalGaussian, t, w) -> Float[Array, " row"]:
    model = eqx.tree_at(lambda b: b.correction.net, base, net)
    return jax.vmap(model.log_density)(t, w)


def _start(
    key: PRNGKeyArray, means: Means, t, w, splits: Splits, settings: GaussianTraining
) -> tuple[ConditionalGaussian, _Fit]:
    """Return the linear fit with networks that are nearly zero, and its scores: the networks have to beat them.

    Everything is made on the host: there is nothing to compile.
    """
    members, held = splits.held_out.shape
    nets = settings.nets(key, t.shape[1], w.shape[1], members=members)
    linear = (on_device(part, t.dtype) for part in means.linear)
    bases = _bases(nets, *linear)
    rows = on_device(np.stack([np.resize(row, held) for row in means.linear_scores]), t.dtype)
    optimiser = _zeros(jax.eval_shape(eqx.filter_vmap(_optimiser(settings).init), nets))  # Adam starts from zeros
    score = on_device(means.linear_scores.mean(axis=1), t.dtype)
    return bases, _Fit(nets, optimiser, nets, _zeros(nets), score, rows)


@eqx.filter_jit
@eqx.filter_vmap
def _bases(net, offset, slope, whitener) -> ConditionalGaussian:
    return ConditionalGaussian(offset, slope, whitener, Flex(net))


def _zeros(tree):
    return jax.tree.map(lambda leaf: on_device(np.zeros(leaf.shape), leaf.dtype), tree)


@partial(large_program, options=SEARCHING)
def _chunk(state: _Fit, bases, t, w, splits: Splits, keys, settings: GaussianTraining) -> _Fit:
    optimiser = _optimiser(settings)
    batch = _batch(settings)

    def one_member(state: _Fit, base, train, held_out, key) -> _Fit:
        # All random numbers at once: every call of the generator takes a while to compile.
        lots = jr.bits(key, (settings.chunk * batch,)).reshape(-1, batch) % train.shape[0]

        def step(carry, lots):
            net, opt, average = carry
            rows = train[lots]
            gradient = jax.grad(lambda net: -jnp.mean(_scores(net, base, t[rows], w[rows])))(net)
            updates, opt = optimiser.update(gradient, opt, net)
            net = eqx.apply_updates(net, updates)
            average = jax.tree.map(lambda a, b: settings.average * a + (1 - settings.average) * b, average, net)
            return (net, opt, average), None

        carry = (state.net, state.optimiser, state.average)
        (net, opt, average), _ = jax.lax.scan(step, carry, lots)
        scores = _scores(average, base, t[held_out], w[held_out])
        better = jnp.mean(scores) > state.best_score  # False for NaN
        new, old = (average, jnp.mean(scores), scores), (state.best, state.best_score, state.best_rows)
        return _Fit(net, opt, average, *jax.tree.map(lambda new, old: jnp.where(better, new, old), new, old))

    return eqx.filter_vmap(one_member)(state, bases, splits.train, splits.held_out, keys)
