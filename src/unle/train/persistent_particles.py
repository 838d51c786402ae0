r"""Particles that Markov kernels move while a model trains, of the joint model or pair by pair.

Of the tilted model:

* `PersistentChains` moves particles by a kernel under the new model, never restarting them;
* `WarmSmc` carries weighted particles from the previous model to the new one: reweight by exp(E_old - E_new),
  resample when the weights have become unequal, then move.  The weights keep the approximation consistent however few
  the moves are.

By default the tilted model is that of the data's parameters, see `unle.train.DataParticles`: a particle stays at its
parameters while kernels move its data, and takes other ones with a fresh draw of the base, which also carries mass
between modes.  Where the base is far from the data fresh draws are hardly ever taken; particles must then move in
their parameters too, under the prior's density.

Of the conditional model, `PairedChains` and `PairedSmc` keep a small set of particles for each simulated pair.  The
gradient of the conditional log-likelihood, mean_i log q(w_i | t_i), is

    - d/d psi mean_i [ E(t_i, w_i) - E_{q(. | t_i)} E(t_i, w) ]:

the expectation is under the model *at the parameters of the data*, so that the distribution which the parameters came
from, a prior or the proposals of several rounds, does not matter.  Only the particles of the batch move.  Z(t) stays
unknown: these models are doubly intractable.
"""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from unle.errors import InputError
from unle.models import AbstractBase, EnergyModel, FixedMeasure
from unle.samplers import (
    AbstractKernel,
    AbstractStepSize,
    Mala,
    Particles,
    Path,
    SharedStepSize,
    StepSizeState,
    bridge,
    choose_rows,
    ess,
    log_mean_exp,
    refresh,
    run_chains,
    run_chains_each,
    run_chains_given,
    systematic_indices,
)
from unle.train.training_particles import (
    AbstractParticles,
    AbstractSpace,
    DataSpace,
    JointSpace,
    ParticleBatch,
    some_rows,
)

BRIDGE_PARTICLES = 2000  # particles that estimate Z_pi
MOST_PARAMETERS = 2**17  # of the data, among which fresh draws choose


class ChainState(NamedTuple):
    """Moving particles, the step-size controller's state, and the data's parameters."""

    particles: Particles
    step_state: StepSizeState
    t: Float[Array, "m dim"]


class _Moving(AbstractParticles):
    """What chains and weighted particles have in common."""

    n: eqx.AbstractVar[int]
    kernel: eqx.AbstractVar[AbstractKernel]
    step_size: eqx.AbstractVar[AbstractStepSize]
    at_data: eqx.AbstractVar[bool]
    fresh: eqx.AbstractVar[bool]

    @property
    def normaliser_draws(self):
        return BRIDGE_PARTICLES

    def init(self, key, joint, base, t):
        if self.at_data and isinstance(base, FixedMeasure):
            raise InputError(
                "expected particles that move in their parameters with a fixed base, whose draws are hardly ever "
                f"taken; try {type(self).__name__}(at_data=False)."
            )
        key_rows, key = jr.split(key)
        t = some_rows(key_rows, t, MOST_PARAMETERS)
        draws = self._space(joint, t).draws(key, base, self.n)
        return ChainState(Particles.equal(draws), self.step_size.init(self.n), t)

    def from_data(self, key, joint, t, w):
        """Start at simulated pairs, where the paper starts, and where a fixed base is not.

        As many of them as there are particles, each once if possible: modes between which no kernel moves a particle
        then have the weights that they have in the data.
        """
        key_rows, key_parameters = jr.split(key)
        rows = jr.permutation(key_rows, t.shape[0])[np.arange(self.n) % t.shape[0]]
        at = t[rows] if self.at_data else jax.vmap(joint.position_of)(t[rows])
        positions = jnp.concatenate([at, w[rows]], axis=1)
        t = some_rows(key_parameters, t, MOST_PARAMETERS)
        return ChainState(Particles.equal(positions), self.step_size.init(self.n), t)

    def log_z(self, key, joint, state, model, t):
        """Carry draws of the base to the model in a few temperatures: unbiased for Z_pi, however far apart they are."""
        key_draw, key_bridge = jr.split(key)
        space = self._space(joint, state.t)
        path = Path(
            lambda position: space.log_reference(model.base, position),
            lambda position: space.log_density(model, position),
            lambda position: space.log_tilt(model, position),
            space.n_fixed,
        )
        _, info = bridge(
            key_bridge,
            Particles.equal(space.draws(key_draw, model.base, BRIDGE_PARTICLES)),
            path,
            kernel=self.kernel,
            step_size=self.step_size,
            step_state=state.step_state,
            moves=2,
            temperatures=10,
        )
        return info.log_z, info.ess

    def _space(self, joint: JointSpace, t: Float[Array, "m dim"]) -> AbstractSpace:
        return DataSpace(t) if self.at_data else joint

    def _as_batch(self, space: AbstractSpace, base: AbstractBase, state: ChainState, acceptance) -> ParticleBatch:
        seen = jax.vmap(lambda position: space.seen(base, position))(state.particles.positions)
        size = jnp.mean(self.step_size.value(state.step_state))
        return ParticleBatch(seen, state.particles.log_weights, of_base=False, acceptance=acceptance, step_size=size)


class PersistentChains(_Moving):
    """Markov chains that are never restarted (persistent contrastive divergence).

    Args:
        n: number of chains.
        moves: kernel steps per training iteration.
        kernel: MALA by default.
        step_size: one shared step size by default.
        at_data: whether the chains live at the parameters of the data; False for the prior's, in which they move too.
        fresh: whether each chain is offered a fresh draw of the base at every iteration besides.
        own_steps: whether each chain tunes a step size of its own in the first half of its moves.
    """

    n: int = eqx.field(static=True, default=1000)
    moves: int = eqx.field(static=True, default=10)
    kernel: AbstractKernel = Mala()
    step_size: AbstractStepSize = SharedStepSize()
    at_data: bool = eqx.field(static=True, default=True)
    fresh: bool = eqx.field(static=True, default=True)
    own_steps: bool = eqx.field(static=True, default=False)

    def advance(self, key, joint, state, old, new, batch):
        """Offer fresh draws, then move under the new model."""
        key_refresh, key_move = jr.split(key)
        space, positions = self._space(joint, state.t), state.particles.positions
        if self.fresh:
            positions = _refreshed(key_refresh, space, positions, new)
        move = partial(run_chains_given, n_fixed=space.n_fixed, step_size=self.step_size)
        move = run_chains_each if self.own_steps and not self.at_data else move
        start = key_move, positions, lambda position: space.log_density(new, position)
        run = move(*start, steps=self.moves, kernel=self.kernel, step_state=state.step_state)
        state = ChainState(Particles.equal(run.positions), run.step_state, state.t)
        return state, self._as_batch(space, new.base, state, run.acceptance)


class WarmSmc(_Moving):
    """Sequential Monte Carlo from the previous model to the current one.

    Args:
        n: number of particles.
        moves: kernel steps at each temperature.
        temperatures: steps of the bridge between two successive models; one suffices unless updates are large.
        ess_threshold: resample when ESS/N falls below this.
        kernel: MALA by default.
        step_size: one shared step size by default.
        at_data: whether the particles live at the parameters of the data; False for the prior's, in which they move
            too.
        fresh: whether each particle is offered a fresh draw of the base at every iteration besides.
    """

    n: int = eqx.field(static=True, default=1000)
    moves: int = eqx.field(static=True, default=3)
    temperatures: int = eqx.field(static=True, default=1)
    ess_threshold: float = eqx.field(static=True, default=0.8)
    kernel: AbstractKernel = Mala()
    step_size: AbstractStepSize = SharedStepSize()
    at_data: bool = eqx.field(static=True, default=True)
    fresh: bool = eqx.field(static=True, default=True)

    def advance(self, key, joint, state, old, new, batch):
        """Bridge, then offer fresh draws."""
        key_bridge, key_refresh = jr.split(key)
        space = self._space(joint, state.t)

        def log_ratio(position):
            seen = space.seen(new.base, position)
            return old.energy(*seen) - new.energy(*seen)

        path = Path(
            lambda position: space.log_density(old, position),
            lambda position: space.log_density(new, position),
            log_ratio,
            space.n_fixed,
        )
        particles, info = bridge(
            key_bridge,
            state.particles,
            path,
            kernel=self.kernel,
            step_size=self.step_size,
            step_state=state.step_state,
            moves=self.moves,
            temperatures=self.temperatures,
            ess_threshold=self.ess_threshold,
        )
        positions = particles.positions
        if self.fresh:
            positions = _refreshed(key_refresh, space, positions, new)
        state = ChainState(Particles(positions, particles.log_weights), info.step_state, state.t)
        return state, self._as_batch(space, new.base, state, info.acceptance)


def _refreshed(key, space: AbstractSpace, positions, model: EnergyModel):
    key_draw, key_accept = jr.split(key)
    proposals = space.draws(key_draw, model.base, positions.shape[0])
    positions, _ = refresh(key_accept, positions, proposals, lambda position: space.log_tilt(model, position))
    return positions


class PairedState(NamedTuple):
    """Particles of every pair, in the base's coordinates."""

    positions: Float[Array, "pair particle data"]  # v
    log_weights: Float[Array, "pair particle"]  # zero for chains
    energies: Float[Array, "pair particle"]  # E of each particle at the pair's last visit
    step_state: StepSizeState  # of the step-size controller, shared by all


class _Paired(AbstractParticles):
    """What chains and weighted particles have in common."""

    n: int = eqx.field(static=True, default=1)  # particles per pair
    moves: int = eqx.field(static=True, default=10)  # kernel steps per visit
    kernel: AbstractKernel = Mala()  # MALA by default
    step_size: AbstractStepSize = SharedStepSize()  # one shared step size by default
    # draws of the base by which log Z(t) is estimated for validation
    importance: int = eqx.field(static=True, default=512)
    # whether each particle is offered a fresh draw of the base at every visit besides
    fresh: bool = eqx.field(static=True, default=True, kw_only=True)
    # whether each particle tunes a step size of its own in the first half of its moves
    own_steps: bool = eqx.field(static=True, default=False, kw_only=True)

    @property
    def normaliser_draws(self):
        return self.importance

    def init(self, key, joint, base, t):
        pairs = t.shape[0]
        v = base.draws_whitened(key, pairs * self.n).reshape(pairs, self.n, -1)
        zeros = jnp.zeros((pairs, self.n))
        return PairedState(v, zeros, zeros, self.step_size.init(1))

    def from_data(self, key, joint, t, w):
        """Start every pair's particles at its own data, as the paper does; in coordinates w, those of a fixed base."""
        zeros = jnp.zeros((w.shape[0], self.n))
        return PairedState(jnp.repeat(w[:, None], self.n, axis=1), zeros, zeros, self.step_size.init(1))

    def started(self, state, known):
        """Take the particles of pairs that had some; new pairs, marked by NaN, keep their draws of the base."""
        if known is None:
            return state
        new = jnp.isnan(known[0]).any(axis=(1, 2))
        drawn = (state.positions, state.log_weights, state.energies)
        return PairedState(*choose_rows(new, drawn, known), state.step_state)

    def log_z(self, key, joint, state, model, t):
        """Average exp(-E) over draws of the base at each t, the same v for all; ESS/N is the 10 % quantile."""
        v = model.base.draws_whitened(key, self.importance)
        log_weights = jax.vmap(lambda t: jax.vmap(lambda v: model.log_tilt_whitened(t, v))(v))(t)
        return jax.vmap(log_mean_exp)(log_weights), jnp.quantile(jax.vmap(ess)(log_weights), 0.1)

    def _moved(self, key, model: EnergyModel, t, positions, step_state):
        """Offer each particle a fresh draw of the base, if `fresh`, and move it under the model at its own t."""
        key_draw, key_accept, key_move = jr.split(key, 3)
        dim = t.shape[1]

        def with_t(v):
            return jnp.concatenate([t, v], axis=1)

        if self.fresh:
            proposals = with_t(model.base.draws_whitened(key_draw, positions.shape[0]))
            refreshed, _ = refresh(
                key_accept, with_t(positions), proposals, lambda tv: model.log_tilt_whitened(tv[:dim], tv[dim:])
            )
            positions = refreshed[:, dim:]

        def density(v, t):
            return model.base.log_density_whitened(v) + model.log_tilt_whitened(t, v)

        move = run_chains_each if self.own_steps else partial(run_chains, step_size=self.step_size)
        start = key_move, positions, density
        return move(*start, steps=self.moves, kernel=self.kernel, step_state=step_state, conditions=t)

    def _visit(self, key, state: PairedState, model: EnergyModel, batch, positions, log_weights):
        """Move the particles of a batch, and write them back."""
        t = jnp.repeat(batch.t, self.n, axis=0)
        run = self._moved(key, model, t, positions.reshape(t.shape[0], -1), state.step_state)
        r = jax.vmap(model.base.features_whitened)(t, run.positions)
        energies = jax.vmap(model.energy)(t, r)
        shape = (*batch.rows.shape, self.n)
        state = PairedState(
            state.positions.at[batch.rows].set(run.positions.reshape(*shape, -1)),
            state.log_weights.at[batch.rows].set(log_weights),
            state.energies.at[batch.rows].set(energies.reshape(shape)),
            run.step_state,
        )
        # Every pair counts the same: weights are normalised pair by pair.
        normalised = jax.nn.log_softmax(log_weights, axis=1).ravel()
        size = jnp.mean(self.step_size.value(run.step_state))
        return state, ParticleBatch((t, r), normalised, of_base=False, acceptance=run.acceptance, step_size=size)


class PairedChains(_Paired):
    """One persistent Markov chain per pair, as in the original SUNLE."""

    def advance(self, key, joint, state, old, new, batch):
        zeros = jnp.zeros((*batch.rows.shape, self.n))
        return self._visit(key, state, new, batch, state.positions[batch.rows], zeros)


class PairedSmc(_Paired):
    """A few weighted particles per pair: reweighted for what the energy changed since the last visit, then moved.

    Args:
        n: particles per pair.
        moves: kernel steps per visit.
        ess_threshold: a pair's particles are resampled when their ESS/N falls below this.
    """

    n: int = eqx.field(static=True, default=8)
    moves: int = eqx.field(static=True, default=2)
    ess_threshold: float = eqx.field(static=True, default=0.5)

    def advance(self, key, joint, state, old, new, batch):
        """Reweight, resample where need be, and move the particles of the batch."""
        key_resample, key_move = jr.split(key)
        v = state.positions[batch.rows]
        now = -jax.vmap(lambda t, v: jax.vmap(lambda v: new.log_tilt_whitened(t, v))(v))(batch.t, v)
        log_weights = state.log_weights[batch.rows] + state.energies[batch.rows] - now

        def resample_pair(shift, v, log_weights):
            keep = ess(log_weights) >= self.ess_threshold
            rows = jnp.where(keep, jnp.arange(self.n), systematic_indices(shift, log_weights))
            return v[rows], jnp.where(keep, log_weights - jnp.max(log_weights), 0.0)

        v, log_weights = jax.vmap(resample_pair)(jr.uniform(key_resample, (len(batch.rows),)), v, log_weights)
        return self._visit(key_move, state, new, batch, v, log_weights)
