"""Minimise a mean loss over pairs (t, w), member by member, and stop when held-out rows no longer gain.

The training of flows and of score matching: AdamW on random batches, a running mean of the weights, and the point of
its path with the lowest held-out loss.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from unle.compiling import DEFAULT_OPTIONS, large_program
from unle.errors import FitError, InputError
from unle.train.loop import Best, Fit, Look, Patience, adamw, begin, run, take_chunk
from unle.train.rows import Rows, Splits

WARM_UP = 50  # steps over which the learning rate rises
VALIDATION_NUMBER = 2**31 - 1  # folded into the key: the held-out loss uses the same randomness every time

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
    """The outcome of a descent: the members' best weights, stacked, their held-out losses, and the steps made."""

    trained: Any
    losses: Float[Array, " member"]
    steps: int


def descend(
    key: PRNGKeyArray,
    loss: Loss,
    trained: Any,
    fixed: Any,
    rows: Rows,
    *,
    settings: Descent,
    title: str = "Training",
    on_chunk: Callable[[dict[str, Any]], None] | None = None,
) -> Descended:
    """Minimise the mean of a loss over rows, for all members at once.

    Args:
        key: randomness of batches and of the loss.
        loss: mean loss of some rows; a function with a name, since every new one is compiled anew.
        trained: what is optimised, all leaves arrays stacked along a leading axis of members.
        fixed: what else the loss needs, stacked likewise.
        rows: standardised simulations.
        settings: of the loop.
        title: of the progress bar.
        on_chunk: called with a record after every chunk.

    Raises:
        FitError: the held-out loss was never finite.
    """
    keys = jr.split(key, rows.members)
    start = _start(keys, loss, trained, fixed, *rows.table, settings)

    def chunk(state: tuple[Fit, Rows], first: int, number: int) -> tuple[Any, Look]:
        fit, rows = state
        rows = rows.renewed(settings.chunk * settings.batch) if number else rows
        fit, recent = _chunk(fit, keys, jnp.asarray(first), loss, fixed, *rows.table, settings)
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


def _optimiser(settings: Descent) -> optax.GradientTransformation:
    warm_up = min(WARM_UP, max(1, settings.iterations // 10))
    iterations = max(settings.iterations, warm_up + 1)
    return adamw(settings.learning_rate, iterations, weight_decay=settings.weight_decay, warm_up=warm_up)


@eqx.filter_jit
def _start(keys, loss: Loss, trained, fixed, t, w, splits: Splits, settings: Descent) -> Fit:
    def one(key, trained, fixed, held_out):
        value = loss(jr.fold_in(key, VALIDATION_NUMBER), trained, fixed, t[held_out], w[held_out])
        score = jnp.where(jnp.isfinite(value), -value, -jnp.inf)
        return Fit(begin(_optimiser(settings), trained), Best(trained, score, score))  # higher is better

    return eqx.filter_vmap(one)(keys, trained, fixed, splits.held_out)


@partial(large_program, options=DEFAULT_OPTIONS)
def _chunk(
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
        fit, losses = take_chunk(_optimiser(settings), state, loss_at, numbers, score, average=settings.average)
        return fit, jnp.mean(losses)

    return eqx.filter_vmap(one_member)(state, keys, fixed, splits.train, splits.held_out)
