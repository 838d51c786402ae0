r"""Particles that follow a tilted model by Markov moves while it trains.

* `PersistentChains` moves particles by a kernel under the new model, never restarting them;
* `WarmSmc` carries weighted particles from the previous model to the new one: reweight by exp(E_old - E_new),
  resample when the weights have become unequal, then move.  The weights keep the approximation consistent however few
  the moves are.

Both also offer each particle a fresh draw of the base, which carries mass between modes.  By default the tilted model
is that of the data's parameters, see `unle.train.DataParticles`: a particle stays at its parameters while kernels move
its data, and takes other ones with a fresh draw.  Where the base is far from the data fresh draws are hardly ever
taken; particles must then move in their parameters too, under the prior's density.
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
    refresh,
    run_chains_each,
    run_chains_given,
)
from unle.train.abstract_particles import AbstractParticles, ParticleBatch, some_rows
from unle.train.joint import AbstractSpace, DataSpace, JointSpace

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
