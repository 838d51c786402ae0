"""Networks of theta that bend Gaussians, mean and covariance, trained by maximum likelihood."""

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from unle.compiling import LARGE_BATCH_OPTIONS, large_program
from unle.models import ConditionalGaussian, Mlp, NeuralCorrection
from unle.space.host_device import keys, on_device, split
from unle.train.loop import Best, Fit, Look, Patience, Weights, adamw, run, take_chunk
from unle.train.regression import Mean
from unle.train.rows import Rows, Splits
from unle.train.validation import is_better

if TYPE_CHECKING:
    from unle.train.gaussian_base import GaussianTraining

SMALLEST_IMPROVEMENT = 0.005  # nats; a fit that improves by less for long is over
EARLY_SHARE = 0.1  # share of the training after which networks are compared with their rival


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
    key: PRNGKeyArray, start: Start, rows: Rows, *, settings: "GaussianTraining", rival: Rival | None = None
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


def _batch(settings: "GaussianTraining") -> int:
    assert settings.batch is not None  # `for_rows` has chosen one
    return settings.batch


def _optimiser(settings: "GaussianTraining") -> optax.GradientTransformation:
    assert settings.weight_decay is not None  # `for_rows` has chosen one
    adam = adamw(settings.learning_rate, settings.iterations, weight_decay=settings.weight_decay)
    return optax.flatten(adam)  # one long vector is quicker to compile


def _scores(net: Mlp, base: ConditionalGaussian, t, w) -> Float[Array, " row"]:
    model = eqx.tree_at(lambda b: b.correction.net, base, net)
    return jax.vmap(model.log_density)(t, w)


def _start(
    key: PRNGKeyArray, start: Start, data: Rows, settings: "GaussianTraining"
) -> tuple[ConditionalGaussian, Fit]:
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
def _chunk(state: Fit, bases, t, w, splits: Splits, keys, settings: "GaussianTraining") -> Fit:
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
