r"""Maximum likelihood of an energy: its settings, and its steps, which particles follow.

The gradient of the log-likelihood of pairs (t_i, w_i) is a difference of two means,

    -d/d psi [ mean_i E(t_i, w_i) - sum_j W_j E(t_j, w_j) ],

over the data and over particles j of the model itself.  Every step moves the particles under the current energy, and
the energy along this gradient.
"""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from unle.models import AbstractBase, AbstractEnergy, EnergyModel, MlpEnergy
from unle.samplers import normalise, over_devices
from unle.train.loop import Weights, adamw, update
from unle.train.paper_log_z import OnlineState, OnlineTraining, online_update
from unle.train.training_particles import AbstractParticles, Batch, DataParticles, JointSpace, ParticleBatch

WARM_UP = 50  # iterations over which the learning rate rises from zero
FINAL_RATE = 0.02  # the cosine ends at this share of the peak
LARGEST_ENTRY = 5.0  # of a gradient
LOWEST_ACCEPTANCE = 0.02  # below, particles no longer follow the model
STEP_BACK = 0.5  # factor on the learning rate after a roll-back


class AbstractEnergyTraining(eqx.Module):
    """Settings of maximum likelihood; see the classes that have values for them."""

    particles: eqx.AbstractVar[AbstractParticles]
    width: eqx.AbstractVar[int]
    depth: eqx.AbstractVar[int]
    bound: eqx.AbstractVar[float | None]
    iterations: eqx.AbstractVar[int]
    batch: eqx.AbstractVar[int]
    learning_rate: eqx.AbstractVar[float]
    weight_decay: eqx.AbstractVar[float]
    average: eqx.AbstractVar[float]  # decay of the running mean of the weights that is returned; 0 for the latest
    chunk: eqx.AbstractVar[int]
    noise: eqx.AbstractVar[float]  # standard deviation of noise that is added to the data
    online: eqx.AbstractVar[OnlineTraining | None]  # how log Z(theta) is learned meanwhile; None if it is not
    biases_decay: eqx.AbstractClassVar[bool]  # or matrices alone

    def untrained(
        self,
        dim_theta: int,
        dim_seen: int,
        *,
        members: int,
        key: PRNGKeyArray | None = None,
        sees_theta: bool = True,
        reach: Float[Array, " member"] | None = None,
    ) -> MlpEnergy:
        """Return nearly constant energies, stacked; of a fixed key if none is given."""
        sizes = {"members": members, "width": self.width, "depth": self.depth, "bound": self.bound, "reach": reach}
        key = jr.key(0) if key is None else key
        return MlpEnergy.stacked(key, dim_theta, dim_seen, sees_theta=sees_theta, **sizes)

    def optimiser(self) -> optax.GradientTransformation:
        """Return Adam with decaying weights, a rise and a cosine, and clipped gradients, as the paper's authors do."""

        def matrices(tree):
            return jax.tree.map(lambda leaf: leaf.ndim > 1, tree)

        return adamw(
            self.learning_rate,
            self.iterations,
            weight_decay=self.weight_decay,
            warm_up=min(WARM_UP, self.iterations // 2),
            final_rate=FINAL_RATE,
            clip=optax.clip(LARGEST_ENTRY),
            mask=None if self.biases_decay else matrices,
        )


class EnergyTraining(AbstractEnergyTraining):
    """Settings of tilted maximum likelihood; the defaults serve every task.

    Args:
        particles: how expectations under the model are followed.
        width: units per hidden layer of the energy.
        depth: hidden layers of the energy.
        bound: largest |E| in nats over a fitted base; None for none.
        iterations: most optimiser steps; early stopping may end before.
        batch: data rows per step (fewer if there are fewer).
        learning_rate: peak of the schedule.
        weight_decay: decoupled decay of weight matrices.
        average: decay of the running mean of the weights that is validated and returned.
        chunk: iterations between validations.
        patience: chunks without improvement after which training stops (no more than three for the theta-free energy).
    """

    particles: AbstractParticles = DataParticles()
    width: int = eqx.field(static=True, default=48)  # a multiple of 16 is faster than 50
    depth: int = eqx.field(static=True, default=4)
    bound: float | None = eqx.field(static=True, default=20.0)
    iterations: int = eqx.field(static=True, default=600)
    batch: int = eqx.field(static=True, default=256)
    learning_rate: float = eqx.field(static=True, default=0.02)
    weight_decay: float = eqx.field(static=True, default=0.2)
    average: float = eqx.field(static=True, default=0.98)
    chunk: int = eqx.field(static=True, default=50)
    patience: int = eqx.field(static=True, default=5)

    noise: ClassVar[float] = 0.0
    online: ClassVar[None] = None
    biases_decay: ClassVar[bool] = False


class EnergyState(NamedTuple):
    """Where the training of one energy stands."""

    before: MlpEnergy  # the energy that the particles stand for: that of one step ago
    weights: Weights  # of the energy
    particles: Any  # their state
    rate: Float[Array, ""]  # factor on the learning rate
    online: OnlineState | None = None  # log Z(theta) that is learned meanwhile, if it is


class StepMetrics(NamedTuple):
    """What some steps showed; means over them."""

    gap: Float[Array, "*member"]  # mean data energy minus mean particle energy, about zero in equilibrium
    acceptance: Float[Array, "*member"]  # of the particles' moves
    step_size: Float[Array, "*member"]  # of the particles' kernel
    ess: Float[Array, "*member"]  # ESS/N of the particles' weights


def likelihood_steps(
    keys: tuple[PRNGKeyArray, PRNGKeyArray],  # randomness of batches, and of moves and noise
    state: EnergyState,  # before the steps
    joint: JointSpace,  # the space of the particles
    base: AbstractBase,  # of the model
    data: tuple[Float[Array, "n dim"], Float[Array, "n seen"]],  # what an energy sees of all rows, (t, r)
    train: Int[Array, " train"],  # rows that it is trained on
    *,
    settings: AbstractEnergyTraining,  # of the training
    visible: Bool[Array, ""] | None = None,  # False holds the energy's weights on t where they are
) -> tuple[EnergyState, StepMetrics]:
    """Make the steps of a chunk.  Pure: for use inside of a compiled program."""
    optimiser = settings.optimiser()
    batch = min(settings.batch, train.shape[0])
    key_order, key_moves = keys
    # Batches are taken without replacement from the rows in an order that changes from chunk to chunk.
    order = jax.lax.sort_key_val(jr.bits(key_order, train.shape), train)[1]

    def step(state: EnergyState, i):
        key, energy = jr.fold_in(key_moves, i), state.weights.trained
        rows = order[(i * batch + jnp.arange(batch)) % len(order)]
        t, r = (part[rows] for part in data)
        if settings.noise:
            key, key_noise = jr.split(key)
            r = r + settings.noise * jr.normal(key_noise, (r.size,)).reshape(r.shape)
        old, new = EnergyModel(base, state.before), EnergyModel(base, energy)
        particles, moved = settings.particles.advance(key, joint, state.particles, old, new, Batch(rows, t))
        moved = over_devices(moved)
        (gap, ess), gradient = eqx.filter_value_and_grad(energy_gap, has_aux=True)(energy, (t, r), moved)

        def change(updates):
            updates = jax.tree.map(lambda leaf: state.rate * leaf, updates)
            return updates if visible is None else _freeze_theta_weights(updates, t.shape[1], visible)

        weights = update(optimiser, state.weights, gradient, average=settings.average, change=change)
        online = state.online
        if online is not None and settings.online is not None:
            online = _online_steps(online, new, moved, settings.online)
        metrics = StepMetrics(gap, moved.acceptance, moved.step_size, ess)
        return EnergyState(energy, weights, particles, state.rate, online), metrics

    state, metrics = jax.lax.scan(step, state, jnp.arange(settings.chunk))
    return state, jax.tree.map(jnp.mean, metrics)


def energy_gap(
    energy: AbstractEnergy, data: tuple[Array, Array], particles: ParticleBatch
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return the mean energy of the data minus that of the particles, and ESS/N of the particles."""
    batch = data[0].shape[0]
    both = [jnp.concatenate(pair) for pair in zip(data, particles.seen, strict=True)]
    energies = jax.vmap(energy)(*both)  # one pass over data and particles together
    log_weights = particles.log_weights - particles.of_base * jax.lax.stop_gradient(energies[batch:])
    weights = jnp.exp(normalise(log_weights))
    gap = jnp.mean(energies[:batch]) - weights @ energies[batch:]
    share = 1.0 / (len(weights) * jnp.sum(jax.lax.stop_gradient(weights) ** 2))
    return gap, jnp.minimum(share, 1.0)  # rounding


def _freeze_theta_weights(updates: MlpEnergy, dim_theta: int, visible: Bool[Array, ""]) -> MlpEnergy:
    """Hold the weights on theta at zero unless theta is visible."""
    first = updates.net.weights[0]
    rows = jnp.arange(first.shape[0])[:, None] < dim_theta
    return eqx.tree_at(lambda e: e.net.weights[0], updates, jnp.where(rows & ~visible, 0.0, first))


def _online_steps(
    online: OnlineState, model: EnergyModel, particles: ParticleBatch, settings: OnlineTraining
) -> OnlineState:
    """Let log Z(theta) follow the energy: some steps, each on another part of the particles."""
    steps = min(settings.steps_per_iteration, len(particles.seen[0]))
    parts = [values[: len(values) // steps * steps].reshape(steps, -1, values.shape[1]) for values in particles.seen]

    def step(online, part):
        return online_update(online, model, *part, settings=settings), None

    return jax.lax.scan(step, online, parts)[0]


def follow_model(gap: Any, acceptance: Any, *, largest_gap: float) -> Any:
    """Return whether particles still follow the model; comparisons with NaN are False, so NaN does not."""
    return (np.abs(np.asarray(gap)) < largest_gap) & (np.asarray(acceptance) > LOWEST_ACCEPTANCE)


def with_smaller_steps(state: EnergyState) -> EnergyState:
    """Return the last healthy state, to go on from after one that was not."""
    return state._replace(rate=STEP_BACK * state.rate)


def skip_schedule(step: Int[Array, ""], state: optax.OptState) -> optax.OptState:
    """Return the state of an optimiser whose learning rate is that of a later step; its moments stay zero."""

    def is_schedule(path, value):
        return getattr(path[-1], "tuple_name", None) == "ScaleByScheduleState"

    return optax.tree_utils.tree_set(state, is_schedule, count=step)
