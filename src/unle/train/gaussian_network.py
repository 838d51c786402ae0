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
from unle.train.loop import Best, Fit, Look, Patience, Weights, adamw, run, take_steps
from unle.train.regression import Mean
from unle.train.score_comparison import is_better
from unle.train.splits import Splits, pad
from unle.train.stream import Stream, renewed

if TYPE_CHECKING:
    from unle.train.gaussian_base import GaussianTraining

SMALLEST_IMPROVEMENT = 0.005  # nats; a fit that improves by less for long is over
EARLY_SHARE = 0.1  # share of the training after which networks are compared with their rival


class Start(NamedTuple):
    """What networks begin with, and have to beat.

    Attributes:
        linear: the members' linear fits.
        scores: their log-likelihood of each held-out row.
    """

    linear: Mean
    scores: Float[np.ndarray, "member held_out"]


class Rival(NamedTuple):
    """Another fit, which networks are compared with after a part of their training.

    Attributes:
        scores: its log-likelihood of each held-out row.
        share: of the rival's gain over the start, which networks must have by then; more than all of it if None, and
            beyond doubt.
    """

    scores: Float[np.ndarray, "member held_out"]
    share: float | None = None

    def wins(self, start: Float[np.ndarray, "member held_out"], early: Float[np.ndarray, "member held_out"]) -> bool:
        """Return whether networks that have come so far are to be given up."""
        if self.share is None:
            return not is_better(early, self.scores)
        return bool(np.mean(early - start) < self.share * np.mean(self.scores - start))


class Networks(NamedTuple):
    """Trained networks.

    Attributes:
        net: of every member, stacked; zero if nothing was better than the start.
        scores: log-likelihood of each held-out row.
        early: the same after a part of the training.
        finished: False if they were given up then.
    """

    net: Mlp
    scores: Float[np.ndarray, "member held_out"]
    early: Float[np.ndarray, "member held_out"]
    finished: bool = True


def train_networks(
    key: PRNGKeyArray,
    start: Start,
    t: Float[Array, "n dim"],
    w: Float[Array, "n *member data"],
    splits: Splits,
    *,
    settings: "GaussianTraining",
    capacity: int | None = None,
    stream: Stream | None = None,
    rival: Rival | None = None,
) -> Networks:
    """Train one network per member.

    Args:
        key: randomness of weights and batches.
        start: linear fits that the networks correct.
        t: standardised parameters.
        w: standardised data; the same for all members, or with an axis for them.
        splits: training and held-out rows of every member.
        settings: with steps and batch for so many rows; see `GaussianTraining.for_rows`.
        capacity: rows that there will be in the end; see `AbstractBaseTraining.fit`.
        stream: where other training rows come from, likewise.
        rival: networks that are behind it after a part of their training are given up.
    """
    members, held = splits.held_out.shape
    t, w, splits = pad(t, w, splits, capacity)
    key_init, key_train = split(key, 2)
    bases, fit = _start(key_init, start, t, w, splits, settings)

    def chunk(state: _Progress, key: PRNGKeyArray, number: int) -> tuple[_Progress, Look]:
        rows = state.rows if stream is None or not number else renewed(state.rows, stream, settings.chunk * batch)
        fit = _chunk(state.fit, bases, *rows, splits, keys(key, members), settings)
        score, early, is_behind = float(np.mean(np.asarray(fit.best.score))), state.early, False
        if early is None and (number + 1) * settings.chunk >= EARLY_SHARE * settings.iterations:
            early = np.asarray(fit.best.rows)[:, :held]
            is_behind = rival is not None and rival.wins(start.scores, early)
        look = Look(score, f"held-out log-likelihood {score:.2f}", is_over=is_behind)
        return _Progress(fit, rows, early, is_behind), look

    batch, chunks = _batch(settings), split(key_train, -(-settings.iterations // settings.chunk))
    how = {"steps": settings.chunk, "patience": Patience(settings.patience, SMALLEST_IMPROVEMENT)}
    end = run(chunk, _Progress(fit, (t, w)), chunks, title="Fitting the Gaussian base", **how).state
    scores = np.asarray(end.fit.best.rows)[:, :held]
    return Networks(end.fit.best.trained, scores, scores if end.early is None else end.early, not end.is_behind)


class _Progress(NamedTuple):
    fit: Fit
    rows: tuple[Array, Array]  # (t, w): a window on them that changes
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
    key: PRNGKeyArray, start: Start, t, w, splits: Splits, settings: "GaussianTraining"
) -> tuple[ConditionalGaussian, Fit]:
    """Return the linear fit with networks that are nearly zero, and its scores: the networks have to beat them.

    Everything is made on the host: there is nothing to compile.
    """
    members, held = splits.held_out.shape
    nets = settings.nets(key, t.shape[1], w.shape[-1], members=members)
    linear = (on_device(part, t.dtype) for part in start.linear)
    bases = bend(nets, *linear)
    rows = on_device(np.stack([np.resize(row, held) for row in start.scores]), t.dtype)
    optimiser = _zeros(jax.eval_shape(eqx.filter_vmap(_optimiser(settings).init), nets))  # Adam starts from zeros
    score = on_device(start.scores.mean(axis=1), t.dtype)
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

        # All random numbers at once: every call of the generator takes a while to compile.
        numbers = jr.bits(key, (settings.chunk * batch,)).reshape(-1, batch) % train.shape[0]
        weights, _ = take_steps(_optimiser(settings), state.weights, loss, numbers, average=settings.average)
        scores = _scores(weights.average, base, t[held_out], w[held_out])
        return Fit(weights, state.best.or_better(weights.average, scores))

    own = None if w.ndim == t.ndim else 1  # the axis of members, if each has data of its own
    each = eqx.filter_vmap(one_member, in_axes=(0, 0, own, 0, 0, 0))
    return each(state, bases, w, splits.train, splits.held_out, keys)
