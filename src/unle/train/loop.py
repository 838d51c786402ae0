r"""The one training loop: every fit begins with a state, makes steps in compiled chunks, and stops.

    weights = begin(optimiser, trained)                      init
    fit, losses = take_chunk(optimiser, fit, loss, ...)      step: inside of a compiled program, and a score
    ended = run(chunk, state, inputs, ...)                   stop: chunks, until patience is over

All of these are values.  `Weights` are what an optimiser changes; `Best` is the point of its path with the highest
held-out score; `Patience` says when training is over.  A chunk is a function (state, input, number) -> (state,
`Look`): it runs a compiled program, and looks at rows that were held out.

`descend` is the loop for a mean loss over pairs (t, w), as flows and score matching have it: AdamW on random batches, a
running mean of the weights, and the point of its path with the lowest held-out loss.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from unle.compiling import DEFAULT_OPTIONS, large_program
from unle.errors import FitError, InputError
from unle.progress import progress
from unle.train.rows import Rows, Splits

LARGEST_NORM = 5.0  # of a gradient, all entries together
SHARE_OF_AIM = 0.5  # of the score to be reached, below which training that no longer improves is given up
CHUNKS_BEFORE_GIVING_UP = 4
WARM_UP = 50  # steps over which the learning rate rises
VALIDATION_NUMBER = 2**31 - 1  # folded into the key: the held-out loss uses the same randomness every time

# (key, trained, fixed, t, w) -> mean loss of the rows.
Loss = Callable[[PRNGKeyArray, Any, Any, Float[Array, "rows dim"], Float[Array, "rows data"]], Float[Array, ""]]


class Patience(NamedTuple):
    """When training is over."""

    chunks: float  # without improvement, after which it is
    worthwhile: float = 0.0  # by how much a score must improve to count
    best: float = -float("inf")  # score so far
    # score of another fit: far below it, training is given up after fewer chunks without improvement
    aim: float = -float("inf")
    since: int = 0  # chunks since the last improvement
    seen: int = 0  # chunks so far

    def after(self, score: float) -> "Patience":
        """Return the patience after another chunk with this score; NaN is no improvement."""
        is_better = score > self.best + self.worthwhile
        best, since = (score, 0) if is_better else (self.best, self.since + 1)
        return self._replace(best=best, since=since, seen=self.seen + 1)

    @property
    def is_over(self) -> bool:
        """Whether training should stop."""
        is_hopeless = self.best < SHARE_OF_AIM * self.aim and self.seen >= CHUNKS_BEFORE_GIVING_UP
        return self.since >= (min(2, self.chunks) if is_hopeless else self.chunks)


class Ended(NamedTuple):
    """The end of a training: the last state, the patience that was left, and the records of all chunks."""

    state: Any
    patience: Patience
    records: list[dict[str, Any]]


class Look(NamedTuple):
    """What a chunk of training came to."""

    score: float  # of held-out rows, higher is better
    note: str  # for the progress bar
    record: dict[str, Any] | None = None  # plain numbers for whoever watches
    is_over: bool = False  # whether training ends here, however much patience is left


def run(
    chunk: Callable[[Any, Any, int], tuple[Any, Look]],
    state: Any,
    inputs: Sequence[Any],
    *,
    steps: int,
    patience: Patience,
    title: str,
    on_chunk: Callable[[dict[str, Any]], None] | None = None,
) -> Ended:
    """Train chunk by chunk until patience is over, or all inputs are spent.

    Every chunk gets one of the inputs: a random key, or a number to make one of.  `on_chunk` is called with the record
    of every chunk, as it ends.
    """
    records = []
    with progress(title, total=len(inputs) * steps, at_most=True) as bar:
        for number, given in enumerate(inputs):
            state, look = chunk(state, given, number)
            records += [] if look.record is None else [look.record]
            if on_chunk is not None and look.record is not None:
                on_chunk(look.record)
            bar.advance(steps, note=look.note)
            patience = patience.after(look.score)
            if look.is_over or patience.is_over:
                break
    return Ended(state, patience, records)


class Weights(NamedTuple):
    """What an optimiser changes: the current weights, its own state, and a running mean of the weights."""

    trained: Any
    optimiser: optax.OptState
    average: Any


def begin(optimiser: optax.GradientTransformation, trained: Any) -> Weights:
    """Return weights before the first step."""
    return Weights(trained, optimiser.init(eqx.filter(trained, eqx.is_array)), trained)


def update(
    optimiser: optax.GradientTransformation,
    weights: Weights,
    gradient: Any,
    *,
    average: float,
    change: Callable[[Any], Any] = lambda updates: updates,
) -> Weights:
    """Make one step along the gradient at `weights.trained`.

    `average` is the decay of the running mean, 0 for the current weights; `change` is made to the updates before they
    are applied.
    """
    updates, state = optimiser.update(gradient, weights.optimiser, eqx.filter(weights.trained, eqx.is_array))
    trained = eqx.apply_updates(weights.trained, change(updates))
    mean = jax.tree.map(lambda a, b: average * a + (1 - average) * b, weights.average, trained) if average else trained
    return Weights(trained, state, mean)


def take_steps(
    optimiser: optax.GradientTransformation,
    weights: Weights,
    loss: Callable[[Any, Any], Float[Array, ""]],
    batches: PyTree[Array],
    *,
    average: float,
    rates: Float[Array, " step"] | None = None,  # factors on the updates
) -> tuple[Weights, Float[Array, " step"]]:
    """Make one step for each batch; return the weights after all of them, and the losses on the way.

    The loss is one of trained weights and a batch; every array of `batches` has an axis of steps first.
    """

    def step(weights: Weights, given):
        batch, rate = given
        value, gradient = jax.value_and_grad(loss)(weights.trained, batch)
        change = (lambda updates: updates) if rate is None else partial(jax.tree.map, lambda leaf: rate * leaf)
        return update(optimiser, weights, gradient, average=average, change=change), value

    return jax.lax.scan(step, weights, (batches, rates))


class Best(NamedTuple):
    """The best point of a path of training: averaged weights, their mean held-out score, and the score of each row."""

    trained: Any
    score: Float[Array, "*member"]
    rows: Float[Array, "*member held_out"]

    def or_better(self, trained: Any, rows: Float[Array, "*held_out"]) -> "Best":
        """Return other weights if they score higher on the same rows, or on their mean; not if a score is NaN."""
        new = Best(trained, jnp.mean(rows), rows)
        is_better = new.score > self.score
        return jax.tree.map(lambda new, old: jnp.where(is_better, new, old), new, self)


class Fit(NamedTuple):
    """Weights in training, and the best point of their path so far."""

    weights: Weights
    best: Best


def take_chunk(
    optimiser: optax.GradientTransformation,
    fit: Fit,
    loss: Callable[[Any, Any], Float[Array, ""]],
    batches: PyTree[Array],
    score: Callable[[Any], Float[Array, "*held_out"]],
    *,
    average: float,
) -> tuple[Fit, Float[Array, " step"]]:
    """Make one step for each batch, then score the averaged weights on held-out rows; other arguments as above."""
    weights, losses = take_steps(optimiser, fit.weights, loss, batches, average=average)
    return Fit(weights, fit.best.or_better(weights.average, score(weights.average))), losses


def adamw(
    learning_rate: float,  # the highest
    iterations: int,  # over which it falls
    *,
    weight_decay: float,  # of all weights, or of those that `mask` chooses
    warm_up: int = 0,  # iterations over which the learning rate rises from zero first
    final_rate: float = 0.0,  # share of the highest learning rate at which the cosine ends
    clip: optax.GradientTransformation | None = None,  # what is done to gradients; their norm is limited by default
    mask: Callable[[Any], Any] | None = None,  # from weights to which of them decay
) -> optax.GradientTransformation:
    """Return Adam with decoupled weight decay, clipped gradients and a learning rate that falls along a cosine."""
    if warm_up:
        schedule = optax.warmup_cosine_decay_schedule(
            0.0, learning_rate, warm_up, iterations, final_rate * learning_rate
        )
    else:
        schedule = optax.cosine_decay_schedule(learning_rate, iterations, alpha=final_rate)
    clip = optax.clip_by_global_norm(LARGEST_NORM) if clip is None else clip
    return optax.chain(clip, optax.adamw(schedule, weight_decay=weight_decay, mask=mask))


class Descent(eqx.Module):
    """Settings of the loop.

    Args:
        iterations: most optimiser steps.
        batch: rows per step (fewer if there are fewer).
        learning_rate: peak of the cosine schedule.
        weight_decay: decoupled weight decay.
        average: decay of the running mean of the weights that is validated and returned.
        chunk: steps between validations.
        patience: chunks in which no member improves, after which the fit stops.
    """

    iterations: int = eqx.field(static=True, default=5000)
    batch: int = eqx.field(static=True, default=256)
    learning_rate: float = eqx.field(static=True, default=2e-3)
    weight_decay: float = eqx.field(static=True, default=1e-3)
    average: float = eqx.field(static=True, default=0.98)
    chunk: int = eqx.field(static=True, default=50)
    patience: int = eqx.field(static=True, default=20)

    def __check_init__(self):
        if min(self.iterations, self.batch, self.chunk, self.patience) < 1 or self.learning_rate <= 0:
            raise InputError(
                "expected positive iterations, batch, chunk, patience and learning_rate; got "
                f"{self.iterations}, {self.batch}, {self.chunk}, {self.patience} and {self.learning_rate}."
            )


class Descended(NamedTuple):
    """The outcome of a descent: the members' best weights, stacked, their held-out losses, and the steps made."""

    trained: Any
    losses: Float[Array, " member"]
    steps: int


def descend(
    key: PRNGKeyArray,  # randomness of batches and of the loss
    loss: Loss,  # mean loss of some rows; a function with a name, since every new one is compiled anew
    trained: Any,  # what is optimised, all leaves arrays stacked along a leading axis of members
    fixed: Any,  # what else the loss needs, stacked likewise
    rows: Rows,  # standardised simulations
    *,
    settings: Descent,  # of the loop
    title: str = "Training",  # of the progress bar
    on_chunk: Callable[[dict[str, Any]], None] | None = None,  # called with a record after every chunk
) -> Descended:
    """Minimise the mean of a loss over rows, for all members at once; a held-out loss never finite is a `FitError`."""
    keys = jr.split(key, rows.members)
    start = _start_descent(keys, loss, trained, fixed, *rows.table, settings)

    def chunk(state: tuple[Fit, Rows], first: int, number: int) -> tuple[Any, Look]:
        fit, rows = state
        rows = rows.renewed(settings.chunk * settings.batch) if number else rows
        fit, recent = _descent_chunk(fit, keys, jnp.asarray(first), loss, fixed, *rows.table, settings)
        score, steps = float(jnp.mean(fit.best.score)), first + settings.chunk
        losses = {"held_out": -score, "loss": float(jnp.mean(recent))}
        record = {"step": steps, "steps": settings.iterations, **losses}
        return (fit, rows), Look(score, f"held-out loss {-score:.3f}", record)

    firsts = range(0, settings.iterations, settings.chunk)  # every step has a key of its own, by its number
    (fit, _), patience, _ = run(
        chunk,
        (start, rows),
        firsts,
        steps=settings.chunk,
        patience=Patience(settings.patience),
        title=title,
        on_chunk=on_chunk,
    )
    if not np.isfinite(np.asarray(fit.best.score)).all():
        raise FitError("the loss of held-out rows was never finite: look for wild columns in the data, and fit again.")
    return Descended(fit.best.trained, -fit.best.score, patience.seen * settings.chunk)


def _descent_optimiser(settings: Descent) -> optax.GradientTransformation:
    warm_up = min(WARM_UP, max(1, settings.iterations // 10))
    iterations = max(settings.iterations, warm_up + 1)
    return adamw(settings.learning_rate, iterations, weight_decay=settings.weight_decay, warm_up=warm_up)


@eqx.filter_jit
def _start_descent(keys, loss: Loss, trained, fixed, t, w, splits: Splits, settings: Descent) -> Fit:
    def one(key, trained, fixed, held_out):
        value = loss(jr.fold_in(key, VALIDATION_NUMBER), trained, fixed, t[held_out], w[held_out])
        score = jnp.where(jnp.isfinite(value), -value, -jnp.inf)
        return Fit(begin(_descent_optimiser(settings), trained), Best(trained, score, score))  # higher is better

    return eqx.filter_vmap(one)(keys, trained, fixed, splits.held_out)


@partial(large_program, options=DEFAULT_OPTIONS)
def _descent_chunk(
    state: Fit, keys, first, loss: Loss, fixed, t, w, splits: Splits, settings: Descent
) -> tuple[Fit, Float[Array, " member"]]:
    """Return the members after another chunk, and the mean loss of its batches."""
    batch = min(settings.batch, splits.train.shape[1])

    def one_member(state: Fit, key, fixed, train, held_out):
        def loss_at(trained, step):
            key_rows, key_loss = jr.split(jr.fold_in(key, step))
            rows = train[jr.randint(key_rows, (batch,), 0, train.shape[0])]
            return loss(key_loss, trained, fixed, t[rows], w[rows])

        def score(trained):
            return -loss(jr.fold_in(key, VALIDATION_NUMBER), trained, fixed, t[held_out], w[held_out])

        numbers = first + jnp.arange(settings.chunk)
        fit, losses = take_chunk(_descent_optimiser(settings), state, loss_at, numbers, score, average=settings.average)
        return fit, jnp.mean(losses)

    return eqx.filter_vmap(one_member)(state, keys, fixed, splits.train, splits.held_out)
