r"""Maximum likelihood of an energy as the paper prints it: one network on a fixed measure, followed by Markov chains.

    log f(w | t) = -E(t, w) + log N(w; 0, s^2 I)

Every iteration moves the particles under the energy of the moment and makes one step of Adam along

    -d/d psi [ mean_i E(t_i, w_i) - mean_j E(t_j, w_j) ],   i over data, j over particles.

The particles decide which model is trained: chains or weighted particles over (theta, x) under the prior, for the
tilted joint model of AUNLE, or one chain per simulated pair, for the conditional model of SUNLE.  They begin at the
data and are never restarted.

**How far training has come** is measured by the same chains.  Between two energies E and E' the mean log-likelihood of
held-out pairs changes by

    -mean_held (E' - E) + 1/2 [ mean_E (E' - E) + mean_E' (E' - E) ],

the trapezoidal rule for the change of -log Z, with means over the particles of both.  Summed up from look to look this
is a learning curve in nats.  No draw of the base is weighed: of a measure as wide as this one nearly none counts.
Looks must not be too close: an update raises the energy of the very particles that it was made from, and summed up over
single iterations that alone looks like progress (by 60 nats on Gaussian Linear Uniform).

**What went wrong** is looked for now and then: chains that no longer move, energies that part from each other, numbers
that are not finite.  Training then goes back to where it was healthy, with half the learning rate.

Reference: Glaser et al. (2023), algorithms 1, 4, 6 and 7, and appendix B.4.
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
from jaxtyping import Array, Float, Int, PRNGKeyArray

from unle.compiling import TRAINING_OPTIONS, large_program
from unle.errors import InputError, Outcome
from unle.models import AbstractEnergy, FixedMeasure, LogNormaliser, MlpEnergy, TiltedModel
from unle.progress import progress
from unle.samplers import normalise, over_devices
from unle.space.host_device import on_device, split
from unle.train.abstract_particles import Batch, ParticleBatch
from unle.train.joint import JointSpace
from unle.train.online_log_z import OnlineState, OnlineTraining, online_start, online_update
from unle.train.per_pair_particles import PairedChains, PairedState
from unle.train.persistent_particles import PersistentChains, WarmSmc
from unle.train.splits import Splits

WARM_UP = 50  # iterations over which the learning rate rises from zero
FINAL_RATE = 0.02  # the cosine ends at this share of the peak
CLIP = 5.0  # of every entry of the gradient
MEASURE = 10.0  # standard deviation of the fixed measure, in those of the data
LOWEST_ACCEPTANCE = 0.02  # below, particles no longer follow the model
LARGEST_GAP = 50.0  # nats between data and particles
OVER_FITTED = 10.0  # nats of held-out likelihood lost against the best look: there is no way back
STEP_BACK = 0.5  # factor on the learning rate after a roll-back
MOST_STEPS_BACK = 12  # then training ends


class PaperTraining(eqx.Module):
    """Settings of the paper and of its authors' code.

    Args:
        particles: `PersistentChains`, or `WarmSmc` for the paper's SMC, of the joint model; `PairedChains` of the
            conditional one.
        width: units per hidden layer of the energy.
        depth: hidden layers of the energy.
        iterations: optimiser steps.
        batch: pairs per step (fewer if there are fewer).
        learning_rate: peak of the schedule.
        weight_decay: decoupled decay of all weights.
        noise: standard deviation of noise that is added to the data at every step, in those of the data.
        look: iterations between looks at the learning curve.
        patience: looks without improvement of the held-out likelihood after which training stops; the energy with the
            best one is returned.  None for the paper's own rule: all iterations, and the last energy.
        online: log Z(theta) is learned together with the energy; None for not.
        online_steps: optimiser steps of log Z(theta) at every iteration, each on a part of the particles.
    """

    particles: PersistentChains | WarmSmc | PairedChains
    width: int = eqx.field(static=True, default=50)
    depth: int = eqx.field(static=True, default=4)
    iterations: int = eqx.field(static=True, default=2000)
    batch: int = eqx.field(static=True, default=1000)
    learning_rate: float = eqx.field(static=True, default=0.01)
    weight_decay: float = eqx.field(static=True, default=0.1)
    noise: float = eqx.field(static=True, default=5e-4)
    look: int = eqx.field(static=True, default=20)
    patience: int | None = eqx.field(static=True, default=25)
    online: OnlineTraining | None = None
    online_steps: int = eqx.field(static=True, default=20)

    def __check_init__(self):
        if min(self.width, self.depth, self.iterations, self.batch, self.look, self.patience or 1) < 1:
            raise InputError(
                "expected positive width, depth, iterations, batch, look and patience; got "
                f"{self.width}, {self.depth}, {self.iterations}, {self.batch}, {self.look} and {self.patience}."
            )
        if self.learning_rate <= 0 or self.weight_decay < 0 or self.noise < 0:
            raise InputError(
                "expected learning_rate > 0, weight_decay >= 0 and noise >= 0; got "
                f"{self.learning_rate}, {self.weight_decay} and {self.noise}."
            )

    def untrained(self, key: PRNGKeyArray, dim_theta: int, dim_data: int) -> MlpEnergy:
        """Return a nearly constant energy."""
        sizes = {"width": self.width, "depth": self.depth, "bound": None}
        stacked = MlpEnergy.stacked(key, dim_theta, dim_data, members=1, sees_theta=True, **sizes)
        return jax.tree.map(lambda leaf: leaf[0], stacked)


class PaperFit(NamedTuple):
    """A trained energy.

    Attributes:
        energy: of the look with the best held-out likelihood.
        particles: their state at that look.
        log_normaliser: log Z(theta), learned meanwhile; None unless asked for.
        gain: held-out log-likelihood per row at that look, above that of the beginning.
        outcome: how training ended.
        steps_back: how often it had to go back to a healthy state.
        history: one record of plain numbers per look.
    """

    energy: MlpEnergy
    particles: Any
    log_normaliser: LogNormaliser | None
    gain: float
    outcome: Outcome
    steps_back: int
    history: list[dict[str, float]]


class _State(NamedTuple):
    before: MlpEnergy  # the energy that the particles stand for
    energy: MlpEnergy
    optimiser: optax.OptState
    particles: Any
    online: OnlineState | None
    rate: Float[Array, ""]
    seen: ParticleBatch  # what the particles were at the last look, for the learning curve


def measure(dim: int) -> FixedMeasure:
    """Return the measure that makes exp(-E) integrable, N(0, 10^2 I) on standardised data."""
    return FixedMeasure(on_device(np.zeros(dim)), on_device(MEASURE))


def fit_as_printed(
    key: PRNGKeyArray,
    joint: JointSpace,
    t: Float[Array, "n dim"],
    w: Float[Array, "n data"],
    splits: Splits,
    *,
    settings: PaperTraining,
    start: MlpEnergy | None = None,
    known: Float[Array, "n particle data"] | None = None,
    log_normaliser: LogNormaliser | None = None,
    on_look: Callable[[dict[str, Any]], None] | None = None,
) -> PaperFit:
    """Train the energy.

    Args:
        key: randomness of weights, batches and particles.
        joint: the space of the particles of the joint model.
        t: standardised parameters.
        w: standardised data.
        splits: training and held-out rows, of one member.
        settings: of the training.
        start: energy to begin with, that of the round before.
        known: particles of every pair to begin with, NaN where a pair has none.
        log_normaliser: log Z(theta) to begin with, if it is learned meanwhile.
        on_look: called with a record at every look.

    Returns:
        A `PaperFit`.
    """
    key_net, key_particles, key_online, key_train = split(key, 4)
    base, train, held = measure(w.shape[1]), splits.train[0], splits.held_out[0]
    energy = settings.untrained(key_net, t.shape[1], w.shape[1]) if start is None else start
    online = None
    if settings.online is not None:
        online = online_start(key_online, t.shape[1], settings=settings.online, start=log_normaliser)
    data = (t, w) if isinstance(settings.particles, PairedChains) else (t[train], w[train])
    state = _start(key_particles, energy, joint, base, t, data, held, known, online, settings)
    best, best_gain, best_look, now = state, 0.0, -1, 0.0
    outcome, history, steps_back = Outcome.BUDGET_SPENT, [], 0
    looks = -(-settings.iterations // settings.look)
    with progress("Training the energy", total=looks * settings.look) as bar:
        for look, key_look in enumerate(split(key_train, looks)):
            new, record = _look(key_look, state, joint, base, t, w, train, held, settings)
            values = {name: float(value) for name, value in record.items()}
            gain = now + values.pop("change")
            healthy = _healthy(values, gain)
            if healthy:
                state, now = new, gain
            else:
                steps_back += 1
                state = state._replace(rate=STEP_BACK * state.rate)
            history.append({"look": look, "looks": looks, **values, "gain": now, "steps_back": steps_back})
            if on_look is not None:
                on_look(history[-1])
            bar.advance(settings.look, note=f"held-out gain {now:+.2f} nats")
            if healthy and (gain > best_gain or best_look < 0 or settings.patience is None):
                best, best_gain, best_look = state, gain, look
            if steps_back >= MOST_STEPS_BACK:
                break
            is_over = settings.patience is not None and look - best_look > settings.patience
            if is_over or now < best_gain - OVER_FITTED:
                outcome = Outcome.CONVERGED
                break
    if steps_back:
        outcome = Outcome.RECOVERED if best_look >= 0 and steps_back < MOST_STEPS_BACK else Outcome.DIVERGED
    learned = None if best.online is None else best.online.average
    return PaperFit(best.before, best.particles, learned, best_gain, outcome, steps_back, history)


def _healthy(values: dict[str, float], gain: float) -> bool:
    """Return whether training is still on its way; comparisons with NaN are False, so NaN is unhealthy."""
    return abs(values["gap"]) < LARGEST_GAP and values["acceptance"] > LOWEST_ACCEPTANCE and bool(np.isfinite(gain))


def _optimiser(settings: PaperTraining) -> optax.GradientTransformation:
    """Return Adam with decaying weights, a rise and a cosine, and clipped gradients, as the authors' code has it."""
    schedule = optax.warmup_cosine_decay_schedule(
        0.0,
        settings.learning_rate,
        min(WARM_UP, settings.iterations // 2),
        settings.iterations,
        FINAL_RATE * settings.learning_rate,
    )
    return optax.chain(optax.clip(CLIP), optax.adamw(schedule, weight_decay=settings.weight_decay))


@large_program
def _start(
    key: PRNGKeyArray,
    energy: MlpEnergy,
    joint: JointSpace,
    base: FixedMeasure,
    t: Float[Array, "n dim"],
    data: tuple[Array, Array],
    held: Int[Array, " held"],
    known: Float[Array, "n particle data"] | None,
    online: OnlineState | None,
    settings: PaperTraining,
) -> _State:
    key_start, key_move = jr.split(key)
    particles = settings.particles.from_data(key_start, joint, *data)
    if known is not None and isinstance(particles, PairedState):
        positions = jnp.where(jnp.isnan(known), particles.positions, known)
        particles = particles._replace(positions=positions)
    model, rows = TiltedModel(base, energy), Batch(held, t[held])
    particles, seen = settings.particles.advance(key_move, joint, particles, model, model, rows)
    optimiser = _optimiser(settings).init(eqx.filter(energy, eqx.is_array))
    return _State(energy, energy, optimiser, particles, online, jnp.ones(()), seen)


@partial(large_program, options=TRAINING_OPTIONS)
def _look(
    key: PRNGKeyArray,
    state: _State,
    joint: JointSpace,
    base: FixedMeasure,
    t: Float[Array, "n dim"],
    w: Float[Array, "n data"],
    train: Int[Array, " train"],
    held: Int[Array, " held"],
    settings: PaperTraining,
) -> tuple[_State, dict[str, Array]]:
    """Train for some iterations, and see what became of the held-out likelihood."""
    optimiser = _optimiser(settings)
    key_order, key_steps, key_seen = jr.split(key, 3)
    batch = min(settings.batch, train.shape[0])
    # Batches are dealt without replacement from the rows in an order that changes from look to look.
    order = jax.lax.sort_key_val(jr.bits(key_order, train.shape), train)[1]

    def step(carry, i):
        before, energy, opt, particles, online = carry
        key_move, key_noise = jr.split(jr.fold_in(key_steps, i))
        rows = order[(i * batch + jnp.arange(batch)) % len(order)]
        old, new = TiltedModel(base, before), TiltedModel(base, energy)
        particles, particles_now = settings.particles.advance(
            key_move, joint, particles, old, new, Batch(rows, t[rows])
        )
        particles_now = over_devices(particles_now)
        noise = settings.noise * jr.normal(key_noise, (batch * w.shape[1],)).reshape(batch, -1)
        gap, gradient = eqx.filter_value_and_grad(_gap)(energy, (t[rows], w[rows] + noise), particles_now)
        updates, opt = optimiser.update(gradient, opt, eqx.filter(energy, eqx.is_array))
        updates = jax.tree.map(lambda leaf: state.rate * leaf, updates)
        if online is not None:
            online = _online_steps(online, new, particles_now, settings)
        carry = (energy, eqx.apply_updates(energy, updates), opt, particles, online)
        return carry, (gap, particles_now.acceptance, particles_now.step_size)

    start = (state.before, state.energy, state.optimiser, state.particles, state.online)
    (before, energy, opt, particles, online), record = jax.lax.scan(step, start, jnp.arange(settings.look))
    old, new, rows = TiltedModel(base, before), TiltedModel(base, energy), Batch(held, t[held])
    particles, seen = settings.particles.advance(key_seen, joint, particles, old, new, rows)
    from_particles = 0.5 * sum(
        _mean_change(state.before, energy, particles_now) for particles_now in (state.seen, seen)
    )
    from_held = jnp.mean(jax.vmap(lambda t, w: energy(t, w) - state.before(t, w))(t[held], w[held]))
    gap, acceptance, step_size = (jnp.mean(values) for values in record)
    moved = _State(energy, energy, opt, particles, online, state.rate, seen)
    return moved, {"change": from_particles - from_held, "gap": gap, "acceptance": acceptance, "step_size": step_size}


def _gap(energy: AbstractEnergy, data: tuple[Array, Array], particles_now: ParticleBatch) -> Float[Array, ""]:
    """Return the mean energy of the data minus that of the particles."""
    batch = data[0].shape[0]
    both = [jnp.concatenate(pair) for pair in zip(data, particles_now.seen, strict=True)]
    energies = jax.vmap(energy)(*both)  # one pass over data and particles together
    return jnp.mean(energies[:batch]) - jnp.exp(normalise(particles_now.log_weights)) @ energies[batch:]


def _mean_change(old: MlpEnergy, new: MlpEnergy, particles_now: ParticleBatch) -> Float[Array, ""]:
    """Return the mean over particles of what training added to the energy."""
    added = jax.vmap(lambda t, w: new(t, w) - old(t, w))(*particles_now.seen)
    return jnp.exp(normalise(particles_now.log_weights)) @ added


def _online_steps(
    online: OnlineState, model: TiltedModel, particles_now: ParticleBatch, settings: PaperTraining
) -> OnlineState:
    """Let log Z(theta) follow the energy: some steps, each on another part of the particles."""
    t, w = particles_now.seen
    steps = min(settings.online_steps, len(t))
    parts = [values[: len(values) // steps * steps].reshape(steps, -1, values.shape[1]) for values in (t, w)]

    def step(online, part):
        return online_update(online, model, *part, settings=settings.online), None

    return jax.lax.scan(step, online, parts)[0]
