r"""Energies over proposals, and what is done about their Z(theta): the parts of `SUNLE(normaliser=...)`.

* `Tilted` trains the joint model over the parameters that were simulated, which makes Z(theta) constant there: the
  posterior is an ordinary one.

The other three train the conditional model at each parameter, as the paper does.  Nothing makes Z(theta) constant
then, and the posterior is doubly intractable:

* `Divi` learns log Z(theta) around the posterior and divides by it: the posterior becomes an ordinary one, with a
  density up to one constant, and every member of the ensemble takes part;
* `Online` learns it from the particles of training, and lets `Divi` finish the job from there;
* `ByExchange` pools the members into one conditional model, and leaves its Z(theta) to the exchange algorithm, whose
  auxiliary draws cancel it.
"""

import abc
from collections.abc import Sequence
from dataclasses import replace
from itertools import compress
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unle.methods.energy_selection import TRAINED_SHARE
from unle.models import (
    ConditionalLikelihood,
    EnergyModel,
    Ensemble,
    LogNormaliser,
    Normalised,
    TractableLikelihood,
    geometric_pool,
    mixture,
)
from unle.posterior import AbstractDoublyIntractableSampler, Exchange
from unle.train import (
    DataParticles,
    EnergyTraining,
    LogNormaliserTraining,
    OnlineTraining,
    PairedChains,
    fit_log_normaliser,
    online_start,
    online_update,
)

ONLINE_BATCH = 256
PATIENT = EnergyTraining(DataParticles(n=512), iterations=1000, weight_decay=0.1, patience=10)  # with one view of data
CONDITIONAL = replace(PATIENT, particles=PairedChains(moves=3), learning_rate=0.01)


class Resolved(NamedTuple):
    """A likelihood that can be sampled, how, and how far off its normaliser is."""

    likelihood: TractableLikelihood  # of the observation
    # that draws from its posterior; None for an ordinary one, which any sampler can sample
    sampler: AbstractDoublyIntractableSampler | None
    error: float  # largest error of log Z over the members, in nats, or NaN where none was learned
    error_sd: float = float("nan")  # largest standard deviation of the errors over the members, likewise
    noise_sd: float = float("nan")  # how much of that the noise of the estimates it was compared with explains


class Fitted(NamedTuple):
    """An ensemble of energies over the region of the last round."""

    ensemble: Ensemble  # with the constants of the distribution that the simulations' parameters came from
    order: list[int]  # of the members, best held-out likelihood first
    gains: list[float]  # held-out likelihood of each above its base, in that order, in nats per row
    theta: Float[np.ndarray, "n dim"]  # draws of the posterior as it is known so far, raw
    particles: Any  # the members' particles at the end of training
    t: Float[Array, "pair dim"]  # standardised parameters of the simulations

    @property
    def members(self) -> list[ConditionalLikelihood]:
        """The members as conditional models of their own, best first."""
        tilted = [self.ensemble.member(k) for k in self.order]
        return [ConditionalLikelihood(one.theta_space, one.x_space, one.model) for one in tilted]

    @property
    def trained(self) -> list[bool]:
        """Which of them learned something; their consensus would be blunted by the others."""
        return [gain >= TRAINED_SHARE * max(self.gains) for gain in self.gains]


class AbstractNormaliser(eqx.Module):
    """How energies are trained, and how their likelihood is made fit for a posterior."""

    energies: eqx.AbstractVar[EnergyTraining]

    @abc.abstractmethod
    def __call__(self, key: PRNGKeyArray, fitted: Fitted) -> Resolved:
        """Return the likelihood to use."""


class Tilted(AbstractNormaliser):
    """Train energies by maximum likelihood of the *joint* model over the parameters that were simulated.

    Args:
        energies: how energies are trained.

    Example:
        >>> import unle
        >>> sunle = unle.SUNLE(prior, simulator, normaliser=unle.Tilted())  # the default  # doctest: +SKIP
    """

    energies: EnergyTraining = PATIENT

    def __call__(self, key, fitted):
        """Return the ensemble as it is: its Z is constant as far as training got."""
        return Resolved(fitted.ensemble, None, float("nan"))


class Divi(AbstractNormaliser):
    """Learn log Z(theta) of every member by matching gradients and values.

    Args:
        training: settings of the fit; `LogNormaliserTraining(values=0.0)` matches gradients alone, as the paper does.
        energies: how energies are trained.

    Example:
        >>> import unle
        >>> as_printed = unle.Divi(unle.train.LogNormaliserTraining(values=0.0))
        >>> sunle = unle.SUNLE(prior, simulator, normaliser=as_printed)  # doctest: +SKIP
    """

    training: LogNormaliserTraining = LogNormaliserTraining()
    energies: EnergyTraining = CONDITIONAL

    def __call__(self, key, fitted):
        """Fit one log-normaliser per member."""
        members = list(compress(fitted.members, fitted.trained))
        return _divided(key, members, fitted.theta, self.training, [None] * len(members))


class Online(AbstractNormaliser):
    """Learn log Z(theta) from the particles that training kept, then finish as `Divi` does.

    Args:
        online: settings of the first part.
        training: settings of the second.
        steps: optimiser steps on the particles.
        energies: how energies are trained; their particles must be those of pairs.

    Example:
        >>> import unle
        >>> sunle = unle.SUNLE(prior, simulator, normaliser=unle.Online())  # doctest: +SKIP
    """

    online: OnlineTraining = OnlineTraining()
    training: LogNormaliserTraining = LogNormaliserTraining(iterations=300)
    steps: int = eqx.field(static=True, default=1000)
    energies: EnergyTraining = CONDITIONAL

    def __call__(self, key, fitted):
        """Recycle the particles, then fit."""
        key_online, key_fit = jr.split(key)
        members = list(compress(fitted.members, fitted.trained))
        positions = fitted.particles.positions[jnp.asarray(list(compress(fitted.order, fitted.trained))), :, 0]
        starts = [
            _recycled(key, member.model, fitted.t, v, self.online, self.steps)
            for key, member, v in zip(jr.split(key_online, len(members)), members, positions, strict=True)
        ]
        return _divided(key_fit, members, fitted.theta, self.training, starts)


class ByExchange(AbstractNormaliser):
    """Sample the doubly intractable posterior of all members together by the exchange algorithm.

    The members become one conditional model, their geometric pool (`unle.models.geometric_pool`), without those whose
    training failed: unlike a mixture, a pool is blunted by a member that knows nothing.  A rough log Z(theta)
    is learned for the chains to propose by: what it gets wrong costs acceptance, and is not in the draws.  It is in the
    density, `Posterior.log_prob`.

    Args:
        sampler: the sampler.
        surrogate: how log Z(theta) is learned for proposals.
        energies: how energies are trained.

    Example:
        >>> import unle
        >>> by_exchange = unle.ByExchange(unle.Exchange(chains=50))
        >>> sunle = unle.SUNLE(prior, simulator, normaliser=by_exchange)  # doctest: +SKIP
    """

    sampler: Exchange = Exchange()
    surrogate: LogNormaliserTraining = LogNormaliserTraining(particles=128, temperatures=1, iterations=300)
    energies: EnergyTraining = CONDITIONAL

    def __call__(self, key, fitted):
        """Pool the members, and leave Z(theta) to the sampler."""
        pool = geometric_pool(fitted.members, [float(learned) for learned in fitted.trained])
        fit = fit_log_normaliser(key, pool, fitted.theta, settings=self.surrogate)
        return Resolved(Normalised(pool, fit.log_normaliser), self.sampler, float("nan"))


def _divided(key, members, theta, training: LogNormaliserTraining, starts: Sequence[LogNormaliser | None]) -> Resolved:
    fits = [
        fit_log_normaliser(key, member, theta, settings=training, start=start)
        for key, member, start in zip(jr.split(key, len(members)), members, starts, strict=True)
    ]
    normalised = [Normalised(member, fit.log_normaliser) for member, fit in zip(members, fits, strict=True)]
    largest, worst = max(fit.error_max for fit in fits), max(fits, key=lambda fit: fit.error_sd)
    return Resolved(mixture(normalised), None, largest, worst.error_sd, worst.noise_sd)


@eqx.filter_jit
def _recycled(key, model: EnergyModel, t, v, settings: OnlineTraining, steps: int) -> LogNormaliser:
    key_start, key_rows = jr.split(key)
    batch = min(ONLINE_BATCH, t.shape[0])

    def step(state, key):
        rows = jr.randint(key, (batch,), 0, t.shape[0])
        return online_update(state, model, t[rows], v[rows], settings=settings), None

    start = online_start(key_start, t.shape[1], settings=settings)
    state, _ = jax.lax.scan(step, start, jr.split(key_rows, steps))
    return jax.tree.map(jnp.asarray, state.average)
