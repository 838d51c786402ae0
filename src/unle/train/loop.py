r"""The one training loop: every fit begins with a state, makes steps in compiled chunks, and stops.

    weights = begin(optimiser, trained)                      init
    fit, losses = take_chunk(optimiser, fit, loss, ...)      step: inside of a compiled program, and a score
    ended = run(chunk, state, inputs, ...)                   stop: chunks, until patience is over

All of these are values.  `Weights` are what an optimiser changes; `Best` is the point of its path with the highest
held-out score; `Patience` says when training is over.  A chunk is a function (state, input, number) -> (state,
`Look`): it runs a compiled program, and looks at rows that were held out.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from unle.progress import progress

LARGEST_NORM = 5.0  # of a gradient, all entries together
SHARE_OF_AIM = 0.5  # of the score to be reached, below which training that no longer improves is given up
CHUNKS_BEFORE_GIVING_UP = 4


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
) -> tuple[Weights, Float[Array, " step"]]:
    """Make one step for each batch; return the weights after all of them, and the losses on the way.

    The loss is one of trained weights and a batch; every array of `batches` has an axis of steps first.
    """

    def step(weights: Weights, batch):
        value, gradient = jax.value_and_grad(loss)(weights.trained, batch)
        return update(optimiser, weights, gradient, average=average), value

    return jax.lax.scan(step, weights, batches)


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
    learning_rate: float,
    iterations: int,
    *,
    weight_decay: float,
    warm_up: int = 0,
    final_rate: float = 0.0,
    clip: optax.GradientTransformation | None = None,
    mask: Callable[[Any], Any] | None = None,
) -> optax.GradientTransformation:
    """Return Adam with decoupled weight decay, clipped gradients and a learning rate that falls along a cosine.

    Args:
        learning_rate: the highest.
        iterations: over which it falls.
        weight_decay: of all weights, or of those that `mask` chooses.
        warm_up: iterations over which the learning rate rises from zero first.
        final_rate: share of the highest learning rate at which the cosine ends.
        clip: what is done to gradients; their norm is limited by default.
        mask: from weights to which of them decay.
    """
    if warm_up:
        schedule = optax.warmup_cosine_decay_schedule(
            0.0, learning_rate, warm_up, iterations, final_rate * learning_rate
        )
    else:
        schedule = optax.cosine_decay_schedule(learning_rate, iterations, alpha=final_rate)
    clip = optax.clip_by_global_norm(LARGEST_NORM) if clip is None else clip
    return optax.chain(clip, optax.adamw(schedule, weight_decay=weight_decay, mask=mask))
