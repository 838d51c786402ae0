r"""Particles of a conditional model: one small set for each simulated pair.

The gradient of the conditional log-likelihood, mean_i log q(w_i | t_i), is

    - d/d psi mean_i [ E(t_i, w_i) - E_{q(. | t_i)} E(t_i, w) ]:

the expectation is under the model *at the parameters of the data*, so that the distribution which the parameters came
from, a prior or the proposals of several rounds, does not matter.  Each pair keeps its own particles from one visit
to the next; only those of the batch move.  Z(t) stays unknown: these models are doubly intractable.
"""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from unle.models import EnergyModel
from unle.samplers import (
    AbstractKernel,
    AbstractStepSize,
    Mala,
    SharedStepSize,
    StepSizeState,
    choose_rows,
    ess,
    log_mean_exp,
    refresh,
    run_chains,
    run_chains_each,
    systematic_indices,
)
from unle.train.abstract_particles import AbstractParticles, ParticleBatch


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
