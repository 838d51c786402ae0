r"""Maximum likelihood of an energy as the paper prints it: one network on a fixed measure, followed by Markov chains.

    log f(w | t) = -E(t, w) + log N(w; 0, s^2 I)

Every iteration moves the particles under the current energy and makes one step of Adam, see
`unle.train.energy_training`.  The particles decide which model is trained: chains or weighted particles over (theta, x)
under the prior, for the tilted joint model of AUNLE, or one chain per simulated pair, for the conditional model of
SUNLE.  They begin at the data and are never restarted.

**How far training has come** is measured by the same chains.  Between two energies E and E' the mean log-likelihood of
held-out pairs changes by

    -mean_held (E' - E) + 1/2 [ mean_E (E' - E) + mean_E' (E' - E) ],

the trapezoidal rule for the change of -log Z, with means over the particles of both.  Summed up over chunks of training
this is a learning curve in nats.  No draw of the base is weighed: of a measure as wide as this one nearly none counts.
Chunks must not be too short: an update raises the energy of the very particles that it was made from, and summed up
over single iterations that alone looks like progress (by 60 nats on Gaussian Linear Uniform).  Where chains follow
slowly, errors of several nats add up.  So only a large loss counts as over-fitting.

**Divergence** is looked for after every chunk: chains that no longer move, energies of data and particles that drift
apart, numbers that are not finite.  Training then goes back to the last healthy state, with half the learning rate.
A round may begin with a large difference of energies: its data lie where the energy was not trained yet.

Reference: Glaser et al. (2023), algorithms 1, 4, 6 and 7, and appendix B.4.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unle.compiling import TRAINING_OPTIONS, large_program, on_device, split
from unle.errors import InputError, Outcome
from unle.models import EnergyModel, FixedMeasure, LogNormaliser, MlpEnergy, unstacked
from unle.samplers import normalise
from unle.train.energy_training import (
    AbstractEnergyTraining,
    EnergyState,
    StepMetrics,
    energy_gap,
    follow_model,
    likelihood_steps,
    with_smaller_steps,
)
from unle.train.loop import Look, Patience, begin, run
from unle.train.paper_log_z import OnlineTraining, online_start
from unle.train.persistent_particles import PairedChains, PairedState, PersistentChains, WarmSmc
from unle.train.rows import Rows
from unle.train.training_particles import Batch, JointSpace, ParticleBatch

MEASURE_SCALE = 10.0  # standard deviation of the fixed measure, in those of the data
LARGEST_GAP = 50.0  # nats between data and particles
LARGEST_GROWTH = 2.0  # factor on that of the beginning, where it was larger
MOST_RECOVERIES = 12  # then training ends


class PaperTraining(AbstractEnergyTraining):
    """Settings of the paper and of its authors' code."""

    # `PersistentChains`, or `WarmSmc` for the paper's SMC, of the joint model; `PairedChains` of the conditional one
    particles: PersistentChains | WarmSmc | PairedChains
    width: int = eqx.field(static=True, default=50)  # units per hidden layer of the energy
    depth: int = eqx.field(static=True, default=4)  # hidden layers of the energy
    iterations: int = eqx.field(static=True, default=2000)  # optimiser steps
    batch: int = eqx.field(static=True, default=1000)  # pairs per step (fewer if there are fewer)
    learning_rate: float = eqx.field(static=True, default=0.01)  # peak of the schedule
    weight_decay: float = eqx.field(static=True, default=0.1)  # decoupled decay of all weights
    # standard deviation of noise that is added to the data at every step, in those of the data
    noise: float = eqx.field(static=True, default=5e-4)
    chunk: int = eqx.field(static=True, default=20)  # iterations between points of the learning curve
    # nats of held-out likelihood that the last energy may have lost against the best chunk; beyond, the energy of that
    # chunk is returned.  None for the paper's own rule: always the last.
    largest_loss: float | None = eqx.field(static=True, default=10.0)
    online: OnlineTraining | None = None  # log Z(theta) is learned together with the energy; None for not
    bound: ClassVar[None] = None
    average: ClassVar[float] = 0.0
    biases_decay: ClassVar[bool] = True

    def __check_init__(self):
        if min(self.width, self.depth, self.iterations, self.batch, self.chunk) < 1:
            raise InputError(
                "expected positive width, depth, iterations, batch and chunk; got "
                f"{self.width}, {self.depth}, {self.iterations}, {self.batch} and {self.chunk}."
            )
        if self.learning_rate <= 0 or min(self.weight_decay, self.noise, self.largest_loss or 0.0) < 0:
            raise InputError(
                "expected learning_rate > 0, weight_decay >= 0, noise >= 0 and largest_loss >= 0; got "
                f"{self.learning_rate}, {self.weight_decay}, {self.noise} and {self.largest_loss}."
            )


class PaperFit(NamedTuple):
    """A trained energy."""

    energy: MlpEnergy  # the last one, or that of the chunk with the best held-out likelihood if the last is over-fitted
    particles: Any  # their state after that chunk
    log_normaliser: LogNormaliser | None  # log Z(theta), learned meanwhile; None unless asked for
    gain: float  # held-out log-likelihood per row after that chunk, above that of the beginning
    outcome: Outcome  # how training ended
    recoveries: int  # how often it had to go back to a healthy state
    history: list[dict[str, float]]  # one record of plain numbers per chunk


class _State(NamedTuple):
    fit: EnergyState
    seen: ParticleBatch  # what the particles were after the last chunk, for the learning curve


def measure(dim: int) -> FixedMeasure:
    """Return the measure that makes exp(-E) integrable, N(0, 10^2 I) on standardised data."""
    return FixedMeasure(on_device(np.zeros(dim)), on_device(MEASURE_SCALE))


def fit_as_printed(
    key: PRNGKeyArray,  # randomness of weights, batches and particles
    joint: JointSpace,  # the space of the particles of the joint model
    rows: Rows,  # standardised simulations, for one member
    *,
    settings: PaperTraining,  # of the training
    start: MlpEnergy | None = None,  # energy to begin with, that of the round before
    # particles of every pair to begin with, NaN where a pair has none
    known: Float[Array, "n particle data"] | None = None,
    log_normaliser: LogNormaliser | None = None,  # log Z(theta) to begin with, if it is learned meanwhile
    on_chunk: Callable[[dict[str, Any]], None] | None = None,  # called with a record after every chunk
) -> PaperFit:
    """Train the energy."""
    key_net, key_particles, key_online, key_train = split(key, 4)
    t, w, train, held_out = rows.t, rows.w, rows.splits.train[0], rows.splits.held_out[0]
    base = measure(w.shape[1])
    if start is None:
        start = unstacked(settings.untrained(t.shape[1], w.shape[1], members=1, key=key_net), 0)
    online = None
    if settings.online is not None:
        online = online_start(key_online, t.shape[1], settings=settings.online, start=log_normaliser)
    data = (t, w) if isinstance(settings.particles, PairedChains) else (t[train], w[train])
    state, gap = _start(key_particles, start, joint, base, t, data, held_out, known, online, settings)
    chunks = -(-settings.iterations // settings.chunk)

    def chunk(before: _Progress, key: PRNGKeyArray, number: int) -> tuple[_Progress, Look]:
        new, change, metrics = _chunk(key, before.state, joint, base, t, w, train, held_out, settings)
        values = {name: float(value) for name, value in metrics._asdict().items()}
        after = before.after(new, float(change), values)
        # Named as the records of `fit_energies`: checks and figures read both.
        progress = {"chunk": number, "chunks": chunks, "sees_theta": True, "recoveries": after.recoveries}
        record = {**progress, **values, "gain": after.now}
        is_over = after.recoveries >= MOST_RECOVERIES
        score = after.now if after.is_healthy else -np.inf
        return after, Look(score, f"held-out gain {after.now:+.2f} nats", record, is_over)

    end, _, history = run(
        chunk,
        _Progress(state, best=state, largest_gap=max(LARGEST_GAP, LARGEST_GROWTH * abs(float(gap)))),
        split(key_train, chunks),
        steps=settings.chunk,
        patience=Patience(np.inf),
        title="Training the energy",
        on_chunk=on_chunk,
    )
    is_over_fitted = end.has_lost(settings.largest_loss)
    chosen, gain = (end.best.fit, end.best_gain) if is_over_fitted else (end.state.fit, end.now)
    learned = None if chosen.online is None else chosen.online.average
    outcome = end.outcome(is_over_fitted=is_over_fitted)
    return PaperFit(chosen.before, chosen.particles, learned, gain, outcome, end.recoveries, history)


class _Progress(NamedTuple):
    """Where training stands."""

    state: _State  # the last that was healthy
    best: _State  # with the highest gain
    largest_gap: float  # nats between data and particles, beyond which training diverges
    best_gain: float = -np.inf  # held-out gain of the best
    now: float = 0.0  # held-out gain of the state
    is_healthy: bool = True  # whether the last chunk was
    recoveries: int = 0  # how often one was not

    def after(self, new: _State, change: float, values: dict[str, float]) -> "_Progress":
        """Return where training stands after another chunk: unhealthy states go back, with smaller steps."""
        gain = self.now + change
        follows = follow_model(values["gap"], values["acceptance"], largest_gap=self.largest_gap)
        if not (follows and np.isfinite(gain)):
            back = self.state._replace(fit=with_smaller_steps(self.state.fit))
            return self._replace(state=back, is_healthy=False, recoveries=self.recoveries + 1)
        after = self._replace(state=new, now=gain, is_healthy=True)
        return after._replace(best=new, best_gain=gain) if gain > self.best_gain else after

    def has_lost(self, largest: float | None) -> bool:
        """Return whether more than so much of the held-out likelihood is lost."""
        return largest is not None and self.now < self.best_gain - largest

    def outcome(self, *, is_over_fitted: bool) -> Outcome:
        """Return how training ended."""
        if self.recoveries:
            has_trained = np.isfinite(self.best_gain) and self.recoveries < MOST_RECOVERIES
            return Outcome.RECOVERED if has_trained else Outcome.DIVERGED
        return Outcome.CONVERGED if is_over_fitted else Outcome.BUDGET_SPENT


@large_program
def _start(
    key, energy: MlpEnergy, joint: JointSpace, base, t, data, held_out, known, online, settings: PaperTraining
) -> tuple[_State, Float[Array, ""]]:
    """Return the state before training, and how far apart the energies of data and particles are."""
    key_start, key_move = jr.split(key)
    particles = settings.particles.from_data(key_start, joint, *data)
    if known is not None and isinstance(particles, PairedState):
        positions = jnp.where(jnp.isnan(known), particles.positions, known)
        particles = particles._replace(positions=positions)
    model, rows = EnergyModel(base, energy), Batch(held_out, t[held_out])
    particles, seen = settings.particles.advance(key_move, joint, particles, model, model, rows)
    fit = EnergyState(energy, begin(settings.optimiser(), energy), particles, jnp.ones(()), online)
    return _State(fit, seen), energy_gap(energy, data, seen)[0]


@partial(large_program, options=TRAINING_OPTIONS)
def _chunk(
    key, state: _State, joint: JointSpace, base, t, w, train, held_out, settings: PaperTraining
) -> tuple[_State, Float[Array, ""], StepMetrics]:
    """Train for some iterations, and see what became of the held-out likelihood."""
    key_order, key_steps, key_seen = jr.split(key, 3)
    fit, metrics = likelihood_steps((key_order, key_steps), state.fit, joint, base, (t, w), train, settings=settings)
    old, energy = state.fit.before, fit.weights.trained
    last, new = EnergyModel(base, fit.before), EnergyModel(base, energy)
    particles, seen = settings.particles.advance(
        key_seen, joint, fit.particles, last, new, Batch(held_out, t[held_out])
    )
    from_particles = 0.5 * sum(_mean_change(old, energy, moment) for moment in (state.seen, seen))
    from_held_out = jnp.mean(jax.vmap(lambda t, w: energy(t, w) - old(t, w))(t[held_out], w[held_out]))
    return _State(fit._replace(before=energy, particles=particles), seen), from_particles - from_held_out, metrics


def _mean_change(old: MlpEnergy, new: MlpEnergy, particles: ParticleBatch) -> Float[Array, ""]:
    """Return the mean over particles of what training added to the energy."""
    added = jax.vmap(lambda t, w: new(t, w) - old(t, w))(*particles.seen)
    return jnp.exp(normalise(particles.log_weights)) @ added
