r"""Maximum likelihood of the tilted model, for all members of an ensemble at once.

Steps (`unle.train.energy_training`) run in compiled chunks.  Between chunks, and only there, the host reads the
metrics, keeps the averaged weights with the best held-out likelihood, stops when it has not improved for a while, and
sends a member that diverged back to where it was healthy, with a smaller step.

A training may begin with energies and particles of the round before (`warm_start`).  From round to round the
standardisation and the linear part of the base change.  What an energy sees, (t, r), changes by an affine map: t and w
are shifted and scaled coordinate by coordinate, and r is affine in both.  With

    (t, r) = M (t', r') + c

the first layer of the network absorbs the map, and the energy stays the same function of theta and x:

    (M v' + c) W + b = v' (M^T W) + (c W + b).

A particle is a point x; it only gets new coordinates.
"""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from unle.compiling import TRAINING_OPTIONS, keys, large_program, meanwhile, on_device, split
from unle.errors import Outcome
from unle.models import AbstractBase, EnergyModel, MlpEnergy, reach_of
from unle.samplers import choose_rows
from unle.space import ThetaSpace, XSpace, affine_change
from unle.train.energy_training import (
    EnergyState,
    EnergyTraining,
    StepMetrics,
    follow_model,
    likelihood_steps,
    skip_schedule,
    with_smaller_steps,
)
from unle.train.loop import Look, Patience, begin, run
from unle.train.persistent_particles import PairedState
from unle.train.rows import Fresh, Rows, Splits
from unle.train.training_particles import JointSpace
from unle.train.validation import Validation, validate

LARGEST_GAP = 100.0  # nats between data and particle energies: the particles have left the data
SMALLEST_IMPROVEMENT = 0.005  # nats; training that improves by less for long is over
LARGEST_LOSS = 10.0  # nats of held-out likelihood lost against the best chunk
MOST_ROWS_AT_ONCE = 2**14  # rows whose features are computed at a time; a base may need k^2 numbers for each
BLOCK_ROWS = 2**12  # rows of a block, beyond that or in a stream
PATIENCE_WITHOUT_THETA = 3  # chunks: the simpler energy has less to learn, and is there to be compared with
VALIDATION_SEED = 1  # seed of the draws by which held-out scores are normalised


class WarmStart(eqx.Module):
    """What a training starts from, in its coordinates.

    Particles are (positions, log-weights, energies) of every pair, NaN where a pair is new; or None.
    """

    energies: MlpEnergy
    particles: tuple[Array, Array, Array] | None


class EnergyFit(NamedTuple):
    """A trained ensemble of energies."""

    energies: MlpEnergy  # averaged energies of the best chunk, stacked along a leading axis
    particles: Any  # the particles' states at that chunk
    validation: Validation | None  # held-out scores at that chunk, or None if no chunk beat the bases
    outcome: Outcome  # how training ended
    history: list[dict[str, float]]  # one record of plain numbers per chunk

    @property
    def gain(self) -> float:
        """Mean held-out gain over the bases in nats; 0 if there was none."""
        return float(np.mean(self.gains))

    @property
    def gains(self) -> np.ndarray:
        """Held-out gain of every member."""
        members = self.energies.net.biases[0].shape[0]
        return np.zeros(members) if self.validation is None else np.asarray(self.validation.gain)


def fit_energies(
    key: PRNGKeyArray,  # randomness of weights, batches and particles
    joint: JointSpace,  # the space of the particles
    bases: AbstractBase,  # the members' bases, stacked
    rows: Rows,  # standardised simulations; training stops by those of `rows.stopping`
    *,
    settings: EnergyTraining,  # of the training
    sees_theta: bool,  # False holds the energy's weights on t at zero: one function of the residuals for all theta
    # energies, and particles if each pair has its own, to begin with; None for nearly constant energies
    start: WarmStart | None = None,
    # of the schedule that is run, its end: good energies to begin with need no more than small steps
    share: float = 1.0,
    aim: float = 0.0,  # held-out gain of other energies: these are given up where they stop improving below half of it
    on_chunk: Callable[[dict[str, Any]], None] | None = None,  # called with the record of every chunk, as it ends
) -> EnergyFit:
    """Train one energy per member on top of the members' bases."""
    key_init, key_train = split(key, 2)
    n_chunks = -(-round(share * settings.iterations) // settings.chunk)
    training = _Training(joint, bases, rows.splits, settings, on_device(sees_theta, bool))
    skipped = max(0, settings.iterations - n_chunks * settings.chunk)
    state, r = _begin(key_init, training, rows, sees_theta=sees_theta, start=start, skipped=skipped)

    def compile_validation(state: EnergyState = state) -> None:
        validate.lower(*training.of_validation(state, rows)).compile()

    def chunk(before: _Progress, key: PRNGKeyArray, number: int) -> tuple[_Progress, Look]:
        rows, r = _renewed(before, training) if number else (before.rows, before.r)
        with nullcontext() if number else meanwhile(compile_validation):
            new, metrics = _chunk(*training.of_chunk(key, before.state, rows.t, r))
        scores = validate(*training.of_validation(new, rows)).of(rows.stopping)
        after = before.after(new, metrics, scores)._replace(rows=rows, r=r)
        means = {name: float(np.mean(np.asarray(value))) for name, value in metrics._asdict().items()}
        record = {"chunks": n_chunks, "continued": share < 1, "chunk": number, "sees_theta": sees_theta, **means}
        record |= {"gain": after.gain, "recoveries": after.recoveries}
        best = f" (kept: {after.best_gain:+.2f})" if after.best_gain > after.gain else ""
        return after, Look(after.gain, f"held-out gain {after.gain:+.2f} nats{best}", record)

    chunks = settings.patience if sees_theta else min(PATIENCE_WITHOUT_THETA, settings.patience)
    title = "Training the energy" if sees_theta else "Training a theta-free energy"
    end, patience, history = run(
        chunk,
        _Progress(state, rows, r, best=state, highest=np.zeros(rows.members)),
        split(key_train, n_chunks),
        steps=settings.chunk,
        patience=Patience(chunks + 1, SMALLEST_IMPROVEMENT, best=0.0, aim=aim),
        title="Training the energy further" if share < 1 else title,
        on_chunk=on_chunk,
    )
    outcome = Outcome.CONVERGED if patience.is_over else Outcome.BUDGET_SPENT
    outcome = Outcome.RECOVERED if end.recoveries else outcome
    return EnergyFit(end.best.weights.average, end.best.particles, end.validation, outcome, history)


def compile_energies(joint: JointSpace, bases: AbstractBase, rows: Rows, *, settings: EnergyTraining) -> None:
    """Compile what `fit_energies` runs, for bases of the same structure and shapes."""
    training = _Training(joint, bases, rows.splits, settings, on_device(1, bool))
    state, r = _begin(jr.key(0), training, rows)
    _chunk.lower(*training.of_chunk(jr.key(0), state, rows.t, r)).compile()
    validate.lower(*training.of_validation(state, rows)).compile()


class _Training(NamedTuple):
    """What stays the same throughout a training."""

    joint: JointSpace
    bases: AbstractBase
    splits: Splits
    settings: EnergyTraining
    visible: Bool[Array, ""]

    def of_chunk(self, key: PRNGKeyArray, state: EnergyState, t: Array, r: Array) -> tuple:
        """Return what `_chunk` takes."""
        chunk_keys = keys(key, len(self.splits.train), 3)
        return state, self.joint, self.bases, t, r, self.splits.train, chunk_keys, self.visible, self.settings

    def of_validation(self, state: EnergyState, rows: Rows) -> tuple:
        """Return what `validate` takes."""
        # All trainings are scored with the same draws: differences between them are not those of chance.
        validation_keys, particles = keys(jr.key(VALIDATION_SEED), rows.members), self.settings.particles
        model = EnergyModel(self.bases, state.weights.average)
        return validation_keys, self.joint, model, rows.t, rows.w, self.splits, particles, state.particles


class _Progress(NamedTuple):
    """Where the training of all members stands."""

    state: EnergyState  # of the members, stacked; unhealthy ones have gone back
    rows: Rows  # a window on them that changes
    r: Float[Array, "member n seen"]  # what energies see of it
    best: EnergyState  # with the highest mean gain so far
    highest: Float[np.ndarray, " member"]  # gain of each member so far
    validation: Validation | None = None  # of the best state; None if it is no better than the bases
    best_gain: float = 0.0  # mean over members
    gain: float = 0.0  # of the last chunk, likewise
    recoveries: int = 0  # how often a member has gone back

    def after(self, new: EnergyState, metrics: StepMetrics, scores: Validation) -> "_Progress":
        """Return where training stands after another chunk."""
        gains = np.asarray(scores.gain)
        healthy = _healthy(metrics, gains, self.highest)
        state = new if healthy.all() else _roll_back(new, self.state, on_device(healthy, bool))
        highest = np.where(healthy, np.maximum(self.highest, gains), self.highest)
        gain = float(np.mean(np.where(healthy, gains, highest)))
        recoveries = self.recoveries + int((~healthy).sum())
        after = self._replace(state=state, highest=highest, gain=gain, recoveries=recoveries)
        if gain > self.best_gain and healthy.all():
            return after._replace(best=state, best_gain=gain, validation=scores)
        return after


def _begin(
    key: PRNGKeyArray,
    training: _Training,
    rows: Rows,
    *,
    sees_theta: bool = True,
    start: WarmStart | None = None,
    skipped: int = 0,
) -> tuple[EnergyState, Float[Array, "member n seen"]]:
    """Return the members before the first step, and what their energies see of the data."""
    key_net, key_particles = split(key, 2)
    bases, members, known = training.bases, rows.members, None
    in_blocks = rows.stream is not None or len(rows.t) > MOST_ROWS_AT_ONCE
    r = _features(bases, rows.t, rows.w, block=BLOCK_ROWS if in_blocks else None)
    reach = reach_of(bases, rows.w.shape[1], members=members)
    if start is None:
        sizes = rows.t.shape[1], r.shape[-1]
        energies = training.settings.untrained(*sizes, members=members, key=key_net, sees_theta=sees_theta, reach=reach)
    else:
        energies, known = start.energies, start.particles
        if reach is not None:
            energies = eqx.tree_at(lambda e: e.reach, energies, reach, is_leaf=lambda node: node is None)
    begun = keys(key_particles, members), energies, training.joint, bases, rows.t
    return _start(*begun, on_device(skipped, np.int32), training.settings, known), r


def _renewed(before: _Progress, training: _Training) -> tuple[Rows, Float[Array, "member n seen"]]:
    """Return rows and features after as many rows as a chunk draws were replaced, if they are a window on more."""
    rows, r, settings = before.rows, before.r, training.settings
    if rows.stream is None:
        return rows, r
    fresh = rows.stream.take(settings.chunk * settings.batch)
    return rows.with_fresh(fresh), _scatter_features(r, training.bases, fresh)


def _healthy(metrics: StepMetrics, gains: np.ndarray, highest: np.ndarray) -> np.ndarray:
    """Return which members are still on their way."""
    follows = follow_model(metrics.gap, metrics.acceptance, largest_gap=LARGEST_GAP)
    return follows & (gains > highest - LARGEST_LOSS)


@large_program
def _start(keys, energies, joint: JointSpace, bases, t, skipped, settings: EnergyTraining, known) -> EnergyState:
    def one(key, energy, base, known):
        particles = settings.particles.init(key, joint, base, t)
        before = jax.tree.map(jnp.zeros_like, energy)  # particles are draws of the base: of no energy
        if known is not None:
            particles, before = settings.particles.started(particles, known), energy
        weights = begin(settings.optimiser(), energy)
        weights = weights._replace(optimiser=skip_schedule(skipped, weights.optimiser))
        return EnergyState(before, weights, particles, jnp.ones(()))

    return eqx.filter_vmap(one)(keys, energies, bases, known)


@large_program
def _features(bases: AbstractBase, t, w, *, block: int | None) -> Float[Array, "member n seen"]:
    """Return what the energies see of the data, all rows at a time or in blocks, which need less memory."""
    if block is None:
        return eqx.filter_vmap(lambda base: jax.vmap(base.features)(t, w))(bases)
    return eqx.filter_vmap(lambda base: jax.lax.map(lambda row: base.features(*row), (t, w), batch_size=block))(bases)


@eqx.filter_jit
def _scatter_features(r, bases: AbstractBase, fresh: Fresh) -> Float[Array, "member n seen"]:
    return r.at[:, fresh.indices].set(_features.function(bases, fresh.t, fresh.w, block=BLOCK_ROWS))


@partial(large_program, options=TRAINING_OPTIONS)
def _chunk(
    state: EnergyState, joint: JointSpace, bases, t, r, train, keys, visible, settings: EnergyTraining
) -> tuple[EnergyState, StepMetrics]:
    """Run one chunk of every member."""

    def one_member(state: EnergyState, base, r, train, keys):
        key_order, key_renew, key_moves = keys
        model = EnergyModel(base, state.weights.trained)
        state = state._replace(particles=settings.particles.renew(key_renew, joint, state.particles, model))
        chunk_keys = key_order, key_moves
        return likelihood_steps(chunk_keys, state, joint, base, (t, r), train, settings=settings, visible=visible)

    return eqx.filter_vmap(one_member)(state, bases, r, train, keys)


@eqx.filter_jit
def _roll_back(state: EnergyState, good: EnergyState, healthy: Bool[Array, " member"]) -> EnergyState:
    """Return unhealthy members to the last healthy state."""
    return choose_rows(healthy, state, with_smaller_steps(good))


class Frame(eqx.Module):
    """The coordinates in which an ensemble of energies is trained."""

    theta_space: ThetaSpace  # standardises theta
    x_space: XSpace  # standardises x
    bases: AbstractBase  # the members' bases, stacked
    t: Float[Array, "pair dim"]  # standardised parameters of the pairs
    rows: Int[Array, " pair"]  # which simulation each pair is; the same number in every round


class Carried(eqx.Module):
    """Energies and particles at the end of a round, and their coordinates.

    Particles are (positions, log-weights, energies) of every pair, if each has particles of its own.
    """

    frame: Frame
    energies: MlpEnergy
    particles: tuple[Array, Array, Array] | None

    @classmethod
    def of(cls, frame: Frame, energies: MlpEnergy, particles: object) -> "Carried":
        """Take what is worth keeping of the particles."""
        known = pair_particles(particles)
        if known is None:
            return cls(frame, energies, None)
        positions, log_weights, values = (part[:, : len(frame.rows)] for part in known)  # beyond them is padding
        return cls(frame, energies, (positions, log_weights, values))


def pair_particles(particles: object) -> tuple[Array, Array, Array] | None:
    """Return (positions, log-weights, energies) of every pair, if each has particles of its own."""
    if not isinstance(particles, PairedState):
        return None
    return particles.positions, particles.log_weights, particles.energies


def warm_start(carried: Carried, frame: Frame, *, pairs: int) -> WarmStart | None:
    """Express energies and particles in new coordinates, for data of so many pairs, padding included.

    None where marginal transforms have changed: no affine map leads from the old coordinates to the new ones.
    """
    if not eqx.tree_equal(*(one.x_space.standardiser.marginals for one in (carried.frame, frame))):
        return None
    energies = _energies(carried.energies, carried.frame, frame)
    if carried.particles is None:
        return WarmStart(energies, None)
    known = {int(row): index for index, row in enumerate(np.asarray(carried.frame.rows))}
    indices = np.full(pairs, -1)
    indices[: len(frame.rows)] = [known.get(int(row), -1) for row in np.asarray(frame.rows)]
    t = jnp.pad(frame.t, [(0, pairs - len(frame.t)), (0, 0)])
    return WarmStart(energies, _particles(carried.particles, carried.frame, frame, t, jnp.asarray(indices)))


@eqx.filter_jit
def _energies(energies: MlpEnergy, old: Frame, new: Frame) -> MlpEnergy:
    a_t, b_t = affine_change(old.theta_space.standardiser, new.theta_space.standardiser)
    a_w, b_w = data_change(old.x_space, new.x_space)
    dim, length = a_t.shape[0], a_t.shape[0] + a_w.shape[0]

    def one(energy: MlpEnergy, old_base: AbstractBase, new_base: AbstractBase) -> MlpEnergy:
        def before(seen):
            """Return the old (t, r) at the new."""
            t, r = seen[:dim], seen[dim:]
            slope = jax.jacfwd(lambda w: new_base.features(t, w))(jnp.zeros_like(r))
            w = jnp.linalg.solve(slope, r - new_base.features(t, jnp.zeros_like(r)))
            old_t = a_t + b_t * t
            return jnp.concatenate([old_t, old_base.features(old_t, a_w + b_w * w)])

        origin = jnp.zeros(length)
        matrix, shift = jax.jacfwd(before)(origin), before(origin)
        weights, bias = energy.net.weights[0], energy.net.biases[0]
        replaced = (matrix.T @ weights, shift @ weights + bias)
        return eqx.tree_at(lambda e: (e.net.weights[0], e.net.biases[0]), energy, replaced)

    return eqx.filter_vmap(one)(energies, old.bases, new.bases)


@eqx.filter_jit
def _particles(
    known: tuple[Array, Array, Array], old: Frame, frame: Frame, t, indices: Int[Array, " pair"]
) -> tuple[Array, Array, Array]:
    positions, log_weights, energies = known
    a_w, b_w = data_change(old.x_space, frame.x_space)
    new = indices < 0

    def one(old_base: AbstractBase, new_base: AbstractBase, positions):
        def moved(old_t, t, v):
            return new_base.whiten(t, (old_base.unwhiten(old_t, v) - a_w) / b_w)

        return jax.vmap(lambda old_t, t, v: jax.vmap(lambda v: moved(old_t, t, v))(v))(old.t[indices], t, positions)

    moved = eqx.filter_vmap(one)(old.bases, frame.bases, positions[:, indices])
    return (
        jnp.where(new[None, :, None, None], jnp.nan, moved),
        log_weights[:, indices],
        energies[:, indices],
    )


def data_change(old: XSpace, new: XSpace) -> tuple[Float[Array, " data"], Float[Array, " data"]]:
    """Return a and b of w_old = a + b w_new; redundant coordinates are not modelled."""
    a, b = affine_change(old.standardiser, new.standardiser)
    return a[: old.dim], b[: old.dim]
