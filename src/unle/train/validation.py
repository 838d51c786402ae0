r"""Held-out likelihood of unnormalised models: by it training is stopped and models are compared.

An unnormalised model has no likelihood until its constant is known.  With an estimate of Z_pi the tilt's merit is

    gain = mean_i(-E(t_i, w_i)) - log Z_pi      (or log Z(t_i), for a conditional model),

the log-likelihood per held-out row above that of the base alone, in nats.  An energy that over-fits has a negative one.

Two fits are compared row by row: their difference has a small standard error, since both find the same rows easy or
hard.  A fit is better if the mean difference exceeds one standard error, or as many as are asked for; never where a
score is NaN.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key
from numpy.typing import ArrayLike

from unle.compiling import TRAINING_OPTIONS, large_program
from unle.models import AbstractBase, EnergyModel
from unle.train.abstract_particles import AbstractParticles
from unle.train.joint import JointSpace
from unle.train.rows import Splits


class Validation(NamedTuple):
    """The held-out score of every member."""

    gain: Float[Array | np.ndarray, " member"]  # per held-out row above the base, shape (member,)
    rows: Float[Array | np.ndarray, "member held_out"]  # the gain of each held-out row, shape (member, held_out)
    # log Z_pi of each member; of a conditional model, the mean of log Z over the held-out parameters
    log_z: Float[Array, " member"]
    ess: Float[Array, " member"]  # the smallest ESS/N met in estimating it; small values make it worthless

    def of(self, part: slice) -> "Validation":
        """Return the score of some of the held-out rows alone, on the host."""
        rows = np.asarray(self.rows)[:, part]
        return self._replace(rows=rows, gain=rows.mean(axis=1))


@partial(large_program, options=TRAINING_OPTIONS)
def validate(
    keys: Key[Array, " member"],
    joint: JointSpace,
    models: EnergyModel,
    t: Float[Array, "n dim"],
    w: Float[Array, "n data"],
    splits: Splits,
    particles: AbstractParticles,
    states: Any,
) -> Validation:
    """Score every member on the rows held out from it.

    The same keys throughout a training make successive scores comparable.  Models and the states of their particles are
    stacked over members.
    """

    def one(key, model, held_out, state):
        log_z, share = particles.log_z(key, joint, state, model, t[held_out])
        rows = jax.vmap(model.log_tilt)(t[held_out], w[held_out]) - log_z
        return Validation(jnp.mean(rows), rows, jnp.mean(log_z), share)

    return eqx.filter_vmap(one)(keys, models, splits.held_out, states)


@eqx.filter_jit
def base_scores(
    bases: AbstractBase, t: Float[Array, "n dim"], w: Float[Array, "n data"], splits: Splits
) -> Float[Array, "member held_out"]:
    """Return log q0(w | t) of the rows held out from each member; bases are stacked."""

    def of_member(base, held_out):
        return jax.vmap(base.log_density)(t[held_out], w[held_out])

    return eqx.filter_vmap(of_member)(bases, jnp.asarray(splits.held_out))


def standard_error(rows: ArrayLike) -> float:
    """Return the standard error of the mean over all rows, of any shape."""
    rows = np.ravel(np.asarray(rows))
    return float(rows.std() / np.sqrt(rows.size))


def is_better(scores: ArrayLike, than: ArrayLike | None = None, *, errors: float = 1.0) -> bool:
    """Return whether scores exceed others, or zero, by more than so many standard errors of their difference.

    Example:
        >>> from unle.train.validation import is_better
        >>> is_better([1.0, 2.0, 3.0], than=[0.9, 2.1, 2.9]), is_better([1.0, 2.0, 3.0], than=[0.8, 1.9, 2.9])
        (False, True)
    """
    difference = np.ravel(np.asarray(scores) if than is None else np.asarray(scores) - np.asarray(than))
    return bool(difference.mean() > errors * standard_error(difference))


def simplest_as_good(scores: Sequence[ArrayLike]) -> int:
    """Return the index of the fit to keep: the first and simplest, unless a later one beats the best before it."""
    best = 0
    for i in range(1, len(scores)):
        if is_better(scores[i], scores[best]):
            best = i
    return best
