"""Minimise a loss over rows, member by member, and stop when held-out rows no longer gain.

The loop behind flows and score matching, whose losses are plain means over pairs (t, w): AdamW on random batches, a
running mean of the weights, and the point of its path with the lowest held-out loss.  Steps run in compiled chunks;
between chunks, on the host, the held-out loss is looked at.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from unle.compiling import DEFAULT_OPTIONS, large_program
from unle.errors import FitError, InputError
from unle.progress import progress
from unle.train.splits import Splits
from unle.train.stream import Stream, scatter_rows

CLIP = 5.0  # global norm of a gradient
WARM_UP = 50  # steps over which the learning rate rises
VALIDATION = 2**31 - 1  # folded into the key: the held-out loss uses the same randomness every time

# (key, trained, fixed, t, w) -> mean loss of the rows.
Loss = Callable[[PRNGKeyArray, Any, Any, Float[Array, "rows dim"], Float[Array, "rows data"]], Float[Array, ""]]


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
    """The outcome of a descent.

    Attributes:
        trained: the members' best weights, stacked as they were given.
        losses: held-out loss of each member.
        steps: optimiser steps made.
    """

    trained: Any
    losses: Float[Array, " member"]
    steps: int


def descend(
    key: PRNGKeyArray,
    loss: Loss,
    trained: Any,
    fixed: Any,
    t: Float[Array, "n dim"],
    w: Float[Array, "n data"],
    splits: Splits,
    *,
    settings: Descent,
    title: str = "Training",
    on_chunk: Callable[[dict[str, Any]], None] | None = None,
    stream: Stream | None = None,
) -> Descended:
    """Minimise.

    Args:
        key: randomness of batches and of the loss.
        loss: mean loss of some rows; a function with a name, since every new one is compiled anew.
        trained: what is optimised, all leaves arrays stacked along a leading axis of members.
        fixed: what else the loss needs, stacked likewise.
        t: standardised parameters.
        w: standardised data.
        splits: training and held-out rows of every member.
        settings: of the loop.
        title: of the progress bar.
        on_chunk: called with a record after every chunk.
        stream: where other training rows come from, if t and w are a window on more data than fit in memory.

    Raises:
        FitError: the held-out loss was never finite.
    """
    keys = jr.split(key, splits.train.shape[0])
    state = _start(keys, loss, trained, fixed, t, w, splits, settings)
    lowest, since, steps = np.inf, 0, 0
    with progress(title, total=settings.iterations) as bar:
        while steps < settings.iterations and since < settings.patience:
            if stream is not None and steps:
                fresh = stream.take(settings.chunk * settings.batch)
                t, w = scatter_rows((t, w), fresh.places, (fresh.t, fresh.w))
            state = _chunk(state, keys, jnp.asarray(steps), loss, fixed, t, w, splits, settings)
            steps += settings.chunk
            held_out = float(jnp.mean(state.lowest))
            bar.advance(settings.chunk, note=f"held-out loss {held_out:.3f}")
            if on_chunk is not None:
                loss_now = float(jnp.mean(state.recent))
                on_chunk({"step": steps, "steps": settings.iterations, "held_out": held_out, "loss": loss_now})
            lowest, since = (held_out, 0) if held_out < lowest else (lowest, since + 1)
    if not np.isfinite(np.asarray(state.lowest)).all():
        raise FitError("the loss of held-out rows was never finite: look for wild columns in the data, and fit again.")
    return Descended(state.best, state.lowest, steps)


class _State(NamedTuple):
    trained: Any
    optimiser: optax.OptState
    average: Any
    best: Any
    lowest: Float[Array, " member"]
    recent: Float[Array, " member"]


def _optimiser(settings: Descent) -> optax.GradientTransformation:
    warm_up = min(WARM_UP, max(1, settings.iterations // 10))
    schedule = optax.warmup_cosine_decay_schedule(
        0.0, settings.learning_rate, warm_up, max(settings.iterations, warm_up + 1)
    )
    return optax.chain(optax.clip_by_global_norm(CLIP), optax.adamw(schedule, weight_decay=settings.weight_decay))


@eqx.filter_jit
def _start(keys, loss: Loss, trained, fixed, t, w, splits: Splits, settings: Descent) -> _State:
    def one(key, trained, fixed, held_out):
        value = loss(jr.fold_in(key, VALIDATION), trained, fixed, t[held_out], w[held_out])
        value = jnp.where(jnp.isfinite(value), value, jnp.inf)
        return _State(trained, _optimiser(settings).init(trained), trained, trained, value, value)

    return eqx.filter_vmap(one)(keys, trained, fixed, splits.held_out)


@partial(large_program, options=DEFAULT_OPTIONS)
def _chunk(state: _State, keys, first, loss: Loss, fixed, t, w, splits: Splits, settings: Descent) -> _State:
    optimiser = _optimiser(settings)
    batch = min(settings.batch, splits.train.shape[1])

    def one_member(state: _State, key, fixed, train, held_out) -> _State:
        def step(carry, i):
            trained, opt, average = carry
            key_rows, key_loss = jr.split(jr.fold_in(key, i))
            rows = train[jr.randint(key_rows, (batch,), 0, train.shape[0])]
            value, gradient = jax.value_and_grad(lambda p: loss(key_loss, p, fixed, t[rows], w[rows]))(trained)
            updates, opt = optimiser.update(gradient, opt, trained)
            trained = eqx.apply_updates(trained, updates)
            average = jax.tree.map(lambda a, b: settings.average * a + (1 - settings.average) * b, average, trained)
            return (trained, opt, average), value

        carry = (state.trained, state.optimiser, state.average)
        (trained, opt, average), values = jax.lax.scan(step, carry, first + jnp.arange(settings.chunk))
        value = loss(jr.fold_in(key, VALIDATION), average, fixed, t[held_out], w[held_out])
        better = value < state.lowest  # False for NaN
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), average, state.best)
        return _State(trained, opt, average, best, jnp.where(better, value, state.lowest), jnp.mean(values))

    return eqx.filter_vmap(one_member)(state, keys, fixed, splits.train, splits.held_out)
