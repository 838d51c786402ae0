r"""Maximum likelihood of the tilted model, for all members of an ensemble at once.

The gradient of the log-likelihood of pairs (t_i, w_i) is a difference of two means,

    - d/d psi [ mean_i E(t_i, w_i) - sum_j W_j E(t_j, w_j) ],

over the data and over particles j of the model itself.  Iterations run in compiled chunks.  Between chunks, and only
there, the host reads the metrics, keeps the averaged weights with the best held-out likelihood, stops when it has
not improved for a while, and sends a member that diverged back to where it was healthy, with a smaller step.
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
import optax
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from unle.compiling import TRAINING_OPTIONS, large_program, meanwhile
from unle.errors import Outcome
from unle.models import AbstractBase, AbstractEnergy, MlpEnergy, TiltedModel, reach_of
from unle.progress import progress
from unle.samplers import normalise, over_devices
from unle.space.host_device import keys, on_device, split
from unle.train.abstract_particles import Batch, ParticleBatch
from unle.train.joint import JointSpace
from unle.train.splits import Splits
from unle.train.stream import Fresh, Stream, scatter_rows
from unle.train.tilted_training import TiltedTraining, begin_at, optimiser_of
from unle.train.validation import Validation, validate
from unle.train.warm_starts import WarmStart

LOWEST_ACCEPTANCE = 0.02  # below, particles no longer follow the model
LARGEST_GAP = 100.0  # nats between data and particle energies: the particles have left the data
WORTHWHILE = 0.005  # nats; training that improves by less for long is over
COLLAPSE = 10.0  # nats of held-out likelihood lost against the best chunk
MOST_AT_ONCE = 2**14  # rows whose features are computed at a time; a base may need k^2 numbers for each
BLOCK = 2**12  # rows of a block, beyond that or in a stream
STEP_BACK = 0.5  # factor on the learning rate after a roll-back
HOPELESS = 0.5  # share of the gain to be reached, below which training that no longer improves is given up
SOON = 4  # chunks after which it may be
VALIDATION = 1  # seed of the draws by which held-out scores are normalised


class ChunkMetrics(NamedTuple):
    """What one chunk of training showed, one number per member.

    Attributes:
        gap: mean data energy minus mean particle energy, about zero in equilibrium.
        acceptance: of the particles' moves.
        step_size: of the particles' kernel.
        ess: mean ESS/N of the particles' weights.
    """

    gap: Float[Array, " member"]
    acceptance: Float[Array, " member"]
    step_size: Float[Array, " member"]
    ess: Float[Array, " member"]


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


class _Member(NamedTuple):
    before: MlpEnergy  # the energy that the particles stand for: that of one iteration ago
    energy: MlpEnergy
    optimiser: optax.OptState
    average: MlpEnergy
    particles: Any
    rate: Float[Array, ""]


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
    visible = on_device(sees_theta, bool)
    n_chunks = -(-round(share * settings.iterations) // settings.chunk)
    skipped = on_device(max(0, settings.iterations - n_chunks * settings.chunk), np.int32)
    key_net, key_particles = split(key_init, 2)
    known = None if start is None else start.particles
    r = _features(bases, t, w, block=_block(t, stream))
    reach = reach_of(bases, w.shape[1], members=members)
    sizes = {"members": members, "key": key_net, "sees_theta": sees_theta, "reach": reach}
    energies = settings.untrained(t.shape[1], r.shape[-1], **sizes) if start is None else start.energies
    energies = energies if reach is None else eqx.tree_at(lambda e: e.reach, energies, reach, is_leaf=_is_none)
    state = _start(keys(key_particles, members), energies, joint, bases, t, skipped, settings, known)
    best, best_gain, best_validation = state, 0.0, None
    mark, best_chunk = 0.0, -1
    highest = np.zeros(members)
    outcome, history, recoveries = Outcome.BUDGET_SPENT, [], 0
    # The simpler energy has less to learn: it is there to be compared with, at less cost.
    patience = settings.patience if sees_theta else min(3, settings.patience)
    # All trainings are scored with the same draws: differences between them are not those of chance.
    keys_z = keys(jr.key(VALIDATION), members)

    # What `validate` takes; its program is compiled next to that of the first chunk.
    def validated(state: _Member) -> tuple:
        return keys_z, joint, TiltedModel(bases, state.average), t, w, splits, settings.particles, state.particles

    def compile_validation(state: _Member = state) -> None:
        validate.lower(*validated(state)).compile()

    title = "Training the energy" if sees_theta else "Training a theta-free energy"
    title = "Training the energy further" if share < 1 else title
    with progress(title, total=n_chunks * settings.chunk) as bar:
        for chunk, key_chunk in enumerate(split(key_train, n_chunks)):
            if stream is not None and chunk:
                fresh = stream.take(settings.chunk * settings.batch)
                t, w = scatter_rows((t, w), fresh.places, (fresh.t, fresh.w))
                r = _put_features(r, bases, fresh)
            keys_chunk = keys(key_chunk, members, 3)
            with nullcontext() if chunk else meanwhile(compile_validation):
                new, metrics = _chunk(state, joint, bases, t, r, splits.train, keys_chunk, visible, settings)
            scores = validate(*validated(new)).of_first(held)
            gains = np.asarray(scores.gain)
            healthy = _healthy(metrics, gains, highest)
            state = new if healthy.all() else _roll_back(new, state, on_device(healthy, bool))
            recoveries += int((~healthy).sum())
            highest = np.where(healthy, np.maximum(highest, gains), highest)
            gain = float(np.mean(np.where(healthy, gains, highest)))
            history.append(
                {"chunks": n_chunks, "continued": share < 1, **_plain(chunk, sees_theta, metrics, gain, recoveries)}
            )
            if on_chunk is not None:
                on_chunk(history[-1])
            bar.advance(settings.chunk, note=f"held-out gain {gain:+.2f} nats")
            if gain > mark + WORTHWHILE:
                mark, best_chunk = gain, chunk
            if gain > best_gain and healthy.all():
                best, best_gain, best_validation = state, gain, scores
            hopeless = mark < HOPELESS * aim and chunk + 1 >= SOON
            if chunk - best_chunk > (min(1, patience) if hopeless else patience):
                outcome = Outcome.CONVERGED
                break
    outcome = Outcome.RECOVERED if recoveries else outcome
    return TiltedFit(best.average, best.particles, best_validation, outcome, history)


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
    r = _features(bases, t, w, block=_block(t, stream))
    reach = reach_of(bases, w.shape[1], members=members)
    energies = settings.untrained(t.shape[1], r.shape[-1], members=members, reach=reach)
    state = _start(keys(key, members), energies, joint, bases, t, zero, settings, None)
    visible = on_device(1, bool)
    _chunk.lower(state, joint, bases, t, r, splits.train, keys(key, members, 3), visible, settings).compile()
    model = TiltedModel(bases, energies)
    validate.lower(keys(key, members), joint, model, t, w, splits, settings.particles, state.particles).compile()


def _is_none(node: Any) -> bool:
    return node is None


def _block(t: Float[Array, "n dim"], stream: Stream | None) -> int | None:
    """Return how many rows `_features` takes at a time; None for all."""
    return None if stream is None and len(t) <= MOST_AT_ONCE else BLOCK


def _healthy(metrics: ChunkMetrics, gains: np.ndarray, highest: np.ndarray) -> np.ndarray:
    """Return which members are still on their way; comparisons with NaN are False, so NaN is unhealthy."""
    return (
        (np.abs(np.asarray(metrics.gap)) < LARGEST_GAP)
        & (np.asarray(metrics.acceptance) > LOWEST_ACCEPTANCE)
        & (gains > highest - COLLAPSE)
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
) -> _Member:
    def one(key, energy, base, known):
        particles = settings.particles.init(key, joint, base, t)
        before = jax.tree.map(jnp.zeros_like, energy)  # particles are draws of the base: of no energy
        if known is not None:
            particles, before = settings.particles.started(particles, known), energy
        opt = begin_at(skipped, optimiser_of(settings).init(eqx.filter(energy, eqx.is_array)))
        return _Member(before, energy, opt, energy, particles, jnp.ones(()))

    return eqx.filter_vmap(one)(keys, energies, bases, known)


@large_program
def _features(bases: AbstractBase, t, w, *, block: int | None) -> Float[Array, "member n seen"]:
    """Return what the energies see of the data, all rows at a time or in blocks, which need less memory."""
    if block is None:
        return eqx.filter_vmap(lambda base: jax.vmap(base.features)(t, w))(bases)
    return eqx.filter_vmap(lambda base: jax.lax.map(lambda row: base.features(*row), (t, w), batch_size=block))(bases)


@eqx.filter_jit
def _put_features(r, bases: AbstractBase, fresh: Fresh) -> Float[Array, "member n seen"]:
    return r.at[:, fresh.places].set(_features.function(bases, fresh.t, fresh.w, block=BLOCK))


@partial(large_program, options=TRAINING_OPTIONS)
def _chunk(
    state: _Member,
    joint: JointSpace,
    bases: AbstractBase,
    t: Float[Array, "n dim"],
    r: Float[Array, "member n seen"],
    train: Int[Array, "member train"],
    keys: Key[Array, "member 3"],
    visible: Bool[Array, ""],
    settings: TiltedTraining,
) -> tuple[_Member, ChunkMetrics]:
    """Run one chunk of every member."""
    optimiser = optimiser_of(settings)
    batch = min(settings.batch, train.shape[1])

    def one_member(state: _Member, base, r, train, keys):
        key_order, key_renew, key_moves = keys
        # Batches are dealt without replacement from the rows in an order that changes from chunk to chunk.
        order = jax.lax.sort_key_val(jr.bits(key_order, train.shape), train)[1]

        def step(carry, i):
            old, energy, opt, average, particles = carry
            rows = order[(i * batch + jnp.arange(batch)) % len(order)]
            particles, cloud = settings.particles.advance(
                jr.fold_in(key_moves, i),
                joint,
                particles,
                TiltedModel(base, old),
                TiltedModel(base, energy),
                Batch(rows, t[rows]),
            )
            cloud = over_devices(cloud)
            (gap, share), gradient = eqx.filter_value_and_grad(_gap, has_aux=True)(energy, (t[rows], r[rows]), cloud)
            updates, opt = optimiser.update(gradient, opt, eqx.filter(energy, eqx.is_array))
            updates = jax.tree.map(lambda leaf: state.rate * leaf, updates)
            new = eqx.apply_updates(energy, _blind(updates, t.shape[1], visible))
            average = jax.tree.map(lambda a, b: settings.average * a + (1 - settings.average) * b, average, new)
            return (energy, new, opt, average, particles), (gap, cloud.acceptance, cloud.step_size, share)

        particles = settings.particles.renew(key_renew, joint, state.particles, TiltedModel(base, state.energy))
        carry = (state.before, state.energy, state.optimiser, state.average, particles)
        (before, energy, opt, average, particles), record = jax.lax.scan(step, carry, jnp.arange(settings.chunk))
        return _Member(before, energy, opt, average, particles, state.rate), ChunkMetrics(*map(jnp.mean, record))

    return eqx.filter_vmap(one_member)(state, bases, r, train, keys)


def _gap(energy: AbstractEnergy, data: tuple[Array, Array], cloud: ParticleBatch) -> tuple[Array, Array]:
    """Return the mean energy of the data minus that of the particles, and ESS/N of the particles."""
    batch = data[0].shape[0]
    both = [jnp.concatenate(pair) for pair in zip(data, cloud.seen, strict=True)]
    energies = jax.vmap(energy)(*both)  # one pass over data and particles together
    log_weights = cloud.log_weights - cloud.of_base * jax.lax.stop_gradient(energies[batch:])
    weights = jnp.exp(normalise(log_weights))
    gap = jnp.mean(energies[:batch]) - weights @ energies[batch:]
    share = 1.0 / (len(weights) * jnp.sum(jax.lax.stop_gradient(weights) ** 2))
    return gap, jnp.minimum(share, 1.0)  # rounding


def _blind(updates: MlpEnergy, dim_theta: int, visible: Bool[Array, ""]) -> MlpEnergy:
    """Hold the weights on theta at zero unless theta is visible."""
    first = updates.net.weights[0]
    rows = jnp.arange(first.shape[0])[:, None] < dim_theta
    return eqx.tree_at(lambda e: e.net.weights[0], updates, jnp.where(rows & ~visible, 0.0, first))


@eqx.filter_jit
def _roll_back(state: _Member, good: _Member, healthy: Bool[Array, " member"]) -> _Member:
    """Return unhealthy members to the last healthy state, with a smaller learning rate."""

    def choose(new, old):
        return jnp.where(healthy.reshape(healthy.shape + (1,) * (new.ndim - 1)), new, old)

    restored = jax.tree.map(choose, state, good)
    return restored._replace(rate=jnp.where(healthy, state.rate, STEP_BACK * good.rate))


def _plain(chunk: int, sees_theta: bool, metrics: ChunkMetrics, gain: float, recoveries: int) -> dict[str, Any]:  # noqa: FBT001
    means = {name: float(np.mean(np.asarray(value))) for name, value in metrics._asdict().items()}
    return {"chunk": chunk, "sees_theta": sees_theta, **means, "gain": gain, "recoveries": recoveries}
