r"""Maximum likelihood of the tilted model, for all members of an ensemble at once.

Steps (`unle.train.energy_training`) run in compiled chunks.  Between chunks, and only there, the host reads the
metrics, keeps the averaged weights with the best held-out likelihood, stops when it has not improved for a while, and
sends a member that diverged back to where it was healthy, with a smaller step.
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
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from unle.compiling import TRAINING_OPTIONS, large_program, meanwhile
from unle.errors import Outcome
from unle.models import AbstractBase, MlpEnergy, TiltedModel, reach_of
from unle.space.host_device import keys, on_device, split
from unle.train.energy_training import (
    LOWEST_ACCEPTANCE,
    STEP_BACK,
    EnergyState,
    StepMetrics,
    TiltedTraining,
    begin_at,
    likelihood_steps,
)
from unle.train.joint import JointSpace
from unle.train.loop import Look, Patience, begin, run
from unle.train.splits import Splits
from unle.train.stream import Fresh, Stream, scatter_rows
from unle.train.validation import Validation, validate
from unle.train.warm_starts import WarmStart

LARGEST_GAP = 100.0  # nats between data and particle energies: the particles have left the data
SMALLEST_IMPROVEMENT = 0.005  # nats; training that improves by less for long is over
LARGEST_LOSS = 10.0  # nats of held-out likelihood lost against the best chunk
MOST_ROWS_AT_ONCE = 2**14  # rows whose features are computed at a time; a base may need k^2 numbers for each
BLOCK_ROWS = 2**12  # rows of a block, beyond that or in a stream
PATIENCE_WITHOUT_THETA = 3  # chunks: the simpler energy has less to learn, and is there to be compared with
VALIDATION_SEED = 1  # seed of the draws by which held-out scores are normalised


class TiltedFit(NamedTuple):
    """A trained ensemble of energies.

    Attributes:
        energies: averaged energies of the best chunk, stacked along a leading axis.
        particles: the particles' states at that chunk.
        validation: held-out scores at that chunk, or None if no chunk beat the bases.
        outcome: how training ended.
        history: one record of plain numbers per chunk.
    """

    energies: MlpEnergy
    particles: Any
    validation: Validation | None
    outcome: Outcome
    history: list[dict[str, float]]

    @property
    def gain(self) -> float:
        """Mean held-out gain over the bases in nats; 0 if there was none."""
        return float(np.mean(self.gains))

    @property
    def gains(self) -> np.ndarray:
        """Held-out gain of every member."""
        members = self.energies.net.biases[0].shape[0]
        return np.zeros(members) if self.validation is None else np.asarray(self.validation.gain)


def fit_tilted(
    key: PRNGKeyArray,
    joint: JointSpace,
    bases: AbstractBase,
    t: Float[Array, "n dim"],
    w: Float[Array, "n data"],
    splits: Splits,
    *,
    settings: TiltedTraining,
    sees_theta: bool,
    start: WarmStart | None = None,
    share: float = 1.0,
    aim: float = 0.0,
    held: int | None = None,
    on_chunk: Callable[[dict[str, Any]], None] | None = None,
    stream: Stream | None = None,
) -> TiltedFit:
    """Train one energy per member on top of the members' bases.

    Args:
        key: randomness of weights, batches and particles.
        joint: the space of the particles.
        bases: the members' bases, stacked.
        t: standardised parameters.
        w: standardised data.
        splits: training and held-out rows of every member.
        settings: of the training.
        sees_theta: False holds the energy's weights on t at zero: one function of the residuals for all theta.
        start: energies, and particles if each pair has its own, to begin with; None for nearly constant energies.
        share: of the schedule that is run, its end: good energies to begin with need no more than small steps.
        aim: held-out gain of other energies: these are given up where they stop improving below half of it.
        held: how many of the held-out rows are not repetitions; all by default.
        on_chunk: called with the record of every chunk, as it ends.
        stream: where other training rows come from, if t and w are a window on more data than fit in memory.

    Returns:
        A `TiltedFit`.
    """
    members = splits.train.shape[0]
    key_init, key_train = split(key, 2)
    key_net, key_particles = split(key_init, 2)
    n_chunks = -(-round(share * settings.iterations) // settings.chunk)
    skipped = on_device(max(0, settings.iterations - n_chunks * settings.chunk), np.int32)
    begun = {"start": start, "key": key_net, "sees_theta": sees_theta, "stream": stream}
    state, r = _begin(keys(key_particles, members), joint, bases, t, w, skipped, settings, **begun)
    visible = on_device(sees_theta, bool)
    # All trainings are scored with the same draws: differences between them are not those of chance.
    keys_z = keys(jr.key(VALIDATION_SEED), members)

    # What `validate` takes; its program is compiled next to that of the first chunk.
    def validated(state: EnergyState, t, w) -> tuple:
        model = TiltedModel(bases, state.weights.average)
        return keys_z, joint, model, t, w, splits, settings.particles, state.particles

    def compile_validation(state: EnergyState = state) -> None:
        validate.lower(*validated(state, t, w)).compile()

    def chunk(before: _Progress, key: PRNGKeyArray, number: int) -> tuple[_Progress, Look]:
        t, w, r = before.data
        if stream is not None and number:
            fresh = stream.take(settings.chunk * settings.batch)
            t, w = scatter_rows((t, w), fresh.indices, (fresh.t, fresh.w))
            r = _scatter_features(r, bases, fresh)
        with nullcontext() if number else meanwhile(compile_validation):
            chunk_keys = keys(key, members, 3)
            new, metrics = _chunk(before.state, joint, bases, t, r, splits.train, chunk_keys, visible, settings)
        scores = validate(*validated(new, t, w)).of_first(held)
        after = before.after(new, metrics, scores)._replace(data=(t, w, r))
        means = {name: float(np.mean(np.asarray(value))) for name, value in metrics._asdict().items()}
        record = {"chunks": n_chunks, "continued": share < 1, "chunk": number, "sees_theta": sees_theta, **means}
        record |= {"gain": after.gain, "recoveries": after.recoveries}
        return after, Look(after.gain, f"held-out gain {after.gain:+.2f} nats", record)

    chunks = settings.patience if sees_theta else min(PATIENCE_WITHOUT_THETA, settings.patience)
    patience = Patience(chunks + 1, SMALLEST_IMPROVEMENT, best=0.0, aim=aim)
    title = "Training the energy" if sees_theta else "Training a theta-free energy"
    how = {"steps": settings.chunk, "patience": patience, "on_chunk": on_chunk}
    how["title"] = "Training the energy further" if share < 1 else title
    first = _Progress(state, (t, w, r), best=state, highest=np.zeros(members))
    end, patience, history = run(chunk, first, split(key_train, n_chunks), **how)
    outcome = Outcome.CONVERGED if patience.is_over else Outcome.BUDGET_SPENT
    outcome = Outcome.RECOVERED if end.recoveries else outcome
    return TiltedFit(end.best.weights.average, end.best.particles, end.validation, outcome, history)


class _Progress(NamedTuple):
    """Where the training of all members stands."""

    state: EnergyState  # of the members, stacked; unhealthy ones have gone back
    data: tuple[Array, Array, Array]  # (t, w, r), a window on them that changes
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


def compile_tilted(
    joint: JointSpace,
    bases: AbstractBase,
    t: Float[Array, "n dim"],
    w: Float[Array, "n data"],
    splits: Splits,
    *,
    settings: TiltedTraining,
    stream: Stream | None = None,
) -> None:
    """Compile what `fit_tilted` runs, for bases of the same structure and shapes; arguments are as there."""
    members = splits.train.shape[0]
    key, zero = jr.key(0), on_device(0, np.int32)
    state, r = _begin(keys(key, members), joint, bases, t, w, zero, settings, stream=stream)
    visible = on_device(1, bool)
    _chunk.lower(state, joint, bases, t, r, splits.train, keys(key, members, 3), visible, settings).compile()
    model = TiltedModel(bases, state.weights.trained)
    validate.lower(keys(key, members), joint, model, t, w, splits, settings.particles, state.particles).compile()


def _begin(
    keys: Key[Array, " member"],
    joint: JointSpace,
    bases: AbstractBase,
    t: Float[Array, "n dim"],
    w: Float[Array, "n data"],
    skipped: Int[Array, ""],
    settings: TiltedTraining,
    *,
    start: WarmStart | None = None,
    stream: Stream | None = None,
    **untrained: Any,
) -> tuple[EnergyState, Float[Array, "member n seen"]]:
    """Return the members before the first step, and what their energies see of the data."""
    r = _features(bases, t, w, block=None if stream is None and len(t) <= MOST_ROWS_AT_ONCE else BLOCK_ROWS)
    reach = reach_of(bases, w.shape[1], members=len(keys))
    if start is None:
        energies = settings.untrained(t.shape[1], r.shape[-1], members=len(keys), reach=reach, **untrained)
    else:
        is_none = {"is_leaf": lambda node: node is None}
        energies = start.energies if reach is None else eqx.tree_at(lambda e: e.reach, start.energies, reach, **is_none)
    known = None if start is None else start.particles
    return _start(keys, energies, joint, bases, t, skipped, settings, known), r


def _healthy(metrics: StepMetrics, gains: np.ndarray, highest: np.ndarray) -> np.ndarray:
    """Return which members are still on their way; comparisons with NaN are False, so NaN is unhealthy."""
    return (
        (np.abs(np.asarray(metrics.gap)) < LARGEST_GAP)
        & (np.asarray(metrics.acceptance) > LOWEST_ACCEPTANCE)
        & (gains > highest - LARGEST_LOSS)
    )


@large_program
def _start(
    keys: Key[Array, " member"],
    energies: MlpEnergy,
    joint: JointSpace,
    bases: AbstractBase,
    t: Float[Array, "n dim"],
    skipped: Int[Array, ""],
    settings: TiltedTraining,
    known: Any,
) -> EnergyState:
    def one(key, energy, base, known):
        particles = settings.particles.init(key, joint, base, t)
        before = jax.tree.map(jnp.zeros_like, energy)  # particles are draws of the base: of no energy
        if known is not None:
            particles, before = settings.particles.started(particles, known), energy
        weights = begin(settings.optimiser(), energy)
        weights = weights._replace(optimiser=begin_at(skipped, weights.optimiser))
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
    state: EnergyState,
    joint: JointSpace,
    bases: AbstractBase,
    t: Float[Array, "n dim"],
    r: Float[Array, "member n seen"],
    train: Int[Array, "member train"],
    keys: Key[Array, "member 3"],
    visible: Bool[Array, ""],
    settings: TiltedTraining,
) -> tuple[EnergyState, StepMetrics]:
    """Run one chunk of every member."""

    def one_member(state: EnergyState, base, r, train, keys):
        key_order, key_renew, key_moves = keys
        model = TiltedModel(base, state.weights.trained)
        state = state._replace(particles=settings.particles.renew(key_renew, joint, state.particles, model))
        how = {"steps": settings.chunk, "settings": settings, "visible": visible}
        return likelihood_steps((key_order, key_moves), state, joint, base, (t, r), train, **how)

    return eqx.filter_vmap(one_member)(state, bases, r, train, keys)


@eqx.filter_jit
def _roll_back(state: EnergyState, good: EnergyState, healthy: Bool[Array, " member"]) -> EnergyState:
    """Return unhealthy members to the last healthy state, with a smaller learning rate."""

    def choose(new, old):
        return jnp.where(healthy.reshape(healthy.shape + (1,) * (new.ndim - 1)), new, old)

    restored = jax.tree.map(choose, state, good)
    return restored._replace(rate=jnp.where(healthy, state.rate, STEP_BACK * good.rate))
