r"""What is done about Z(theta) of a conditional energy-based likelihood.

Its posterior is doubly intractable.  Three ways out, the parts of `SUNLE(normalising=...)`:

* `Divi` learns log Z(theta) around the posterior and divides by it: the posterior becomes an ordinary one, with a
  density up to one constant, and every member of the ensemble takes part;
* `Online` learns it from the particles of training, and lets `Divi` finish the job from there;
* `ByExchange` leaves Z(theta) alone: chains of the exchange algorithm, with one member, cancel it by auxiliary draws.
"""

import abc
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unle.models import (
    AbstractLikelihood,
    ConditionalLikelihood,
    LogNormaliser,
    Normalised,
    TiltedModel,
    mixture,
)
from unle.posterior import AbstractDoublyIntractableStrategy, AbstractStrategy, Exchange, TemperedSmc
from unle.train import LogNormaliserTraining, OnlineTraining, fit_log_normaliser, online_start, online_update

ONLINE_BATCH = 256


class Resolved(NamedTuple):
    """A likelihood that can be sampled, how, and how far off its normaliser is.

    Attributes:
        likelihood: of the observation.
        strategy: that draws from its posterior.
        error: largest error of log Z over the members, in nats, or NaN where none was learned.
    """

    likelihood: AbstractLikelihood
    strategy: AbstractStrategy | AbstractDoublyIntractableStrategy
    error: float


class AbstractNormalising(eqx.Module):
    """How a conditional likelihood is made fit for a posterior."""

    @abc.abstractmethod
    def __call__(
        self,
        key: PRNGKeyArray,
        members: list[ConditionalLikelihood],
        theta: Float[np.ndarray, "n dim"],
        particles: Float[Array, "member pair data"],
        t: Float[Array, "pair dim"],
    ) -> Resolved:
        """Return the likelihood to use.

        Args:
            key: randomness.
            members: the ensemble, best first.
            theta: draws of the posterior as it is known so far, raw.
            particles: a draw of each member's q(. | t_i) for every pair, in the base's coordinates.
            t: standardised parameters of these pairs.
        """


class Divi(AbstractNormalising):
    """Learn log Z(theta) of every member by matching gradients and values.

    Args:
        training: settings of the fit; `LogNormaliserTraining(values=0.0)` matches gradients alone, as the paper does.
    """

    training: LogNormaliserTraining = LogNormaliserTraining()

    def __call__(self, key, members, theta, particles, t):
        """Fit one log-normaliser per member."""
        return _divided(key, members, theta, self.training, [None] * len(members))


class Online(AbstractNormalising):
    """Learn log Z(theta) from the particles that training kept, then finish as `Divi` does.

    Args:
        online: settings of the first part.
        training: settings of the second.
        steps: optimiser steps on the particles.
    """

    online: OnlineTraining = OnlineTraining()
    training: LogNormaliserTraining = LogNormaliserTraining(iterations=300)
    steps: int = eqx.field(static=True, default=1000)

    def __call__(self, key, members, theta, particles, t):
        """Recycle the particles, then fit."""
        key_online, key_fit = jr.split(key)
        starts = [
            _recycled(key, member.model, t, v, self.online, self.steps)
            for key, member, v in zip(jr.split(key_online, len(members)), members, particles, strict=True)
        ]
        return _divided(key_fit, members, theta, self.training, starts)


class ByExchange(AbstractNormalising):
    """Sample the doubly intractable posterior of the best member by the exchange algorithm.

    Args:
        strategy: the sampler.
    """

    strategy: Exchange = Exchange()

    def __call__(self, key, members, theta, particles, t):
        """Leave Z(theta) to the sampler."""
        return Resolved(members[0], self.strategy, float("nan"))


def _divided(key, members, theta, training: LogNormaliserTraining, starts: Sequence[LogNormaliser | None]) -> Resolved:
    fits = [
        fit_log_normaliser(key, member, theta, settings=training, start=start)
        for key, member, start in zip(jr.split(key, len(members)), members, starts, strict=True)
    ]
    normalised = [Normalised(member, fit.log_normaliser) for member, fit in zip(members, fits, strict=True)]
    return Resolved(mixture(normalised), TemperedSmc(), max(fit.error_max for fit in fits))


@eqx.filter_jit
def _recycled(key, model: TiltedModel, t, v, settings: OnlineTraining, steps: int) -> LogNormaliser:
    key_start, key_rows = jr.split(key)
    batch = min(ONLINE_BATCH, t.shape[0])

    def step(state, key):
        rows = jr.randint(key, (batch,), 0, t.shape[0])
        return online_update(state, model, t[rows], v[rows], settings=settings), None

    start = online_start(key_start, t.shape[1], settings=settings)
    state, _ = jax.lax.scan(step, start, jr.split(key_rows, steps))
    return jax.tree.map(jnp.asarray, state.average)
