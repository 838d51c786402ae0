r"""Particle approximations of a tilted model while it trains.

The gradient of the log-likelihood needs an expectation under the model of the moment.  Several ways to follow it:

* `BaseParticles` takes draws of the prior and the base with weights exp(-E): no chains, hence nothing that could fail
  to mix, as long as the base is near enough for many draws to count (a dozen dimensions or so); `DataParticles` does
  so at the parameters of the data;
* `PersistentChains` moves particles by a Markov kernel under the new model, never restarting them;
* `WarmSmc` carries weighted particles from the previous model to the new one: reweight by exp(E_old - E_new),
  resample when the weights have become unequal, then move.  The weights keep the approximation consistent however few
  the moves are.

The last two also offer each particle a fresh draw of the base, which carries mass between modes.  Particles of a
conditional model, which lives at the parameters of the data, are in `unle.train.paired`.
"""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from unle.models import AbstractBase, TiltedModel
from unle.samplers import (
    AbstractKernel,
    AbstractStepSize,
    Mala,
    Particles,
    SharedStepSize,
    StepSizeState,
    bridge,
    ess,
    log_mean_exp,
    refresh,
    run_chains,
    systematic_indices,
)
from unle.train.joint import JointSpace

Seen = tuple[Float[Array, "particle dim"], Float[Array, "particle data"]]  # (t, r): what an energy sees


class Batch(NamedTuple):
    """Data of one iteration.

    Attributes:
        rows: which rows of the data.
        t: their parameters.
    """

    rows: Int[Array, " batch"]
    t: Float[Array, "batch dim"]


class Cloud(NamedTuple):
    """The particles of one moment, and how they came about.

    Attributes:
        seen: (t, r) of each particle.
        log_weights: weights that make them a sample of the model; without the factor exp(-E) where `of_base` is set.
        of_base: whether exp(-E) is still missing from the weights; the gradient evaluates E there anyway.
        acceptance: mean acceptance probability of the moves that made them; 1 if there were none.
        step_size: of these moves; 0 if there were none.
    """

    seen: Seen
    log_weights: Float[Array, " particle"]
    of_base: bool
    acceptance: Float[Array, ""]
    step_size: Float[Array, ""]


class AbstractParticles(eqx.Module):
    """How particles follow a model that changes.  States are pytrees that only their own class reads."""

    @abc.abstractmethod
    def init(self, key: PRNGKeyArray, joint: JointSpace, base: AbstractBase, t: Float[Array, "n dim"]) -> Any:
        """Return a state for a model whose energy is still constant; t are the parameters of all data."""

    @abc.abstractmethod
    def advance(
        self, key: PRNGKeyArray, joint: JointSpace, state: Any, old: TiltedModel, new: TiltedModel, batch: Batch
    ) -> tuple[Any, Cloud]:
        """Turn particles of the old model into particles of the new one.

        Args:
            key: randomness of the moves.
            joint: the space of the particles.
            state: from the previous call.
            old: the model of the previous iteration.
            new: the model now.
            batch: the data of this iteration; only particles that belong to data look at it.
        """

    def started(self, state: Any, known: Any) -> Any:
        """Take over the particles of a warm start, if there are any; nothing to do for most."""
        return state

    def renew(self, joint: JointSpace, state: Any, model: TiltedModel) -> Any:
        """Prepare for another chunk of training, with the model as it is now; nothing to do for most."""
        return state

    @abc.abstractmethod
    def log_z(
        self, key: PRNGKeyArray, joint: JointSpace, state: Any, model: TiltedModel, t: Float[Array, "m dim"]
    ) -> tuple[Float[Array, "*m"], Float[Array, ""]]:
        """Estimate the log-normaliser of a model, and return the smallest ESS/N met on the way.

        It is one number, log Z_pi, for a tilted model; for a conditional one it is log Z at each of the m points t.
        """


class PoolState(NamedTuple):
    """A pool of particles of the model as it was when the pool was made.

    Attributes:
        key: randomness of the next pool.
        t: parameters of data, as many as there are or as a pool needs.
        seen: (t, r) of every particle.
        energies: E of every particle at that time; zero before.
    """

    key: PRNGKeyArray
    t: Float[Array, "m dim"]
    seen: Seen
    energies: Float[Array, " pool"]


class BaseParticles(AbstractParticles):
    """Importance sampling from the base, with other particles at every iteration.

    A pool of draws is resampled in proportion to exp(-E) as it is when the pool is made; particles are taken from it,
    and weighed by what the energy has changed since: nearly even weights, and no chain that could fail to mix.  Every
    chunk has a pool of its own: between the draws of one that lasts, an energy learns to hide.

    Args:
        n: particles per iteration.
        pool: draws of prior and base made for each chunk, from which they are taken; up to twice as many.
        validation: draws by which Z_pi is estimated; up to twice as many.
    """

    n: int = eqx.field(static=True, default=256)
    pool: int = eqx.field(static=True, default=16384)
    validation: int = eqx.field(static=True, default=8192)

    def init(self, key, joint, base, t):
        """Return an empty pool, of the right shape; `renew` fills it."""
        t = t[: self.pool]
        shapes = jax.eval_shape(lambda: self._draws(key, joint, base, t, self.pool))
        seen = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        return PoolState(key, t, seen, jnp.zeros(seen[0].shape[0]))

    def renew(self, joint, state, model):
        """Draw another pool, evaluate the energy on all of it, and resample."""
        key, key_pool, key_resample = jr.split(state.key, 3)
        seen = self._draws(key_pool, joint, model.base, state.t, self.pool)
        energies = jax.vmap(model.energy)(*seen)
        chosen = systematic_indices(key_resample, -energies)
        return PoolState(key, state.t, *jax.tree.map(lambda leaf: leaf[chosen], (seen, energies)))

    def advance(self, key, joint, state, old, new, batch):
        """Take n of the pool, to be weighed by exp(E when it was made - E)."""
        size = state.energies.shape[0]
        comb = (jnp.arange(self.n) + jr.uniform(key)) / self.n  # neighbours in the pool may be copies
        rows = jnp.minimum((size * comb).astype(int), size - 1)
        seen = jax.tree.map(lambda leaf: leaf[rows], state.seen)
        return state, Cloud(seen, state.energies[rows], of_base=True, acceptance=jnp.ones(()), step_size=jnp.zeros(()))

    def log_z(self, key, joint, state, model, t):
        """Average exp(-E) over draws of its own."""
        seen = self._draws(key, joint, model.base, state.t, self.validation)
        log_weights = -jax.vmap(model.energy)(*seen)
        return log_mean_exp(log_weights), ess(log_weights)

    def _draws(
        self, key: PRNGKeyArray, joint: JointSpace, base: AbstractBase, t: Float[Array, "m dim"], n: int
    ) -> Seen:
        """Draw n pairs (t, r) of prior and base (others: up to 2 n); the parameters t of the data are for others."""
        positions = joint.draws(key, base, n)
        return jax.vmap(lambda position: joint.seen(base, position))(positions)


class DataParticles(BaseParticles):
    r"""Importance sampling from the base at the parameters of the data, instead of draws of the prior.

    The tilted model is then that of the distribution the data's parameters came from, a prior or the proposals of
    several rounds, whose density need not be known:

        q(t, w) = pi(t) q0(w | t) exp(-E(t, w)) / Z_pi,   Z_pi = E_{t ~ pi, w ~ q0}[exp(-E)].

    Maximum likelihood makes Z(t) the same wherever data are, so the posterior is an ordinary one.  And as data and
    particles share their parameters, the energy cannot spend itself on how the parameters happen to be spread.
    """

    def _draws(self, key, joint, base, t, n):
        """Draw data at the parameters t, beginning anywhere, as often at each: what depends on t alone is done once."""
        key_rows, key_draw = jr.split(key)
        m = min(t.shape[0], n)
        copies = -(-n // m)
        t = t[(jr.randint(key_rows, (), 0, t.shape[0]) + jnp.arange(m)) % t.shape[0]]
        v = base.draws_whitened(key_draw, m * copies).reshape(m, copies, -1)
        r = jax.vmap(lambda t, copies: jax.vmap(lambda v: base.features_whitened(t, v))(copies))(t, v)
        return jnp.repeat(t, copies, axis=0), r.reshape(m * copies, -1)


class ChainState(NamedTuple):
    """Moving particles and the step-size controller's state."""

    particles: Particles
    step_state: StepSizeState


class PersistentChains(AbstractParticles):
    """Markov chains that are never restarted (persistent contrastive divergence).

    Args:
        n: number of chains.
        moves: kernel steps per training iteration.
        kernel: MALA by default.
        step_size: one shared step size by default.
    """

    n: int = eqx.field(static=True, default=1000)
    moves: int = eqx.field(static=True, default=10)
    kernel: AbstractKernel = Mala()
    step_size: AbstractStepSize = SharedStepSize()

    def init(self, key, joint, base, t):
        """Start from draws of prior and base."""
        return ChainState(Particles.equal(joint.draws(key, base, self.n)), self.step_size.init(self.n))

    def advance(self, key, joint, state, old, new, batch):
        """Offer fresh draws, then move under the new model."""
        key_refresh, key_move = jr.split(key)
        run = run_chains(
            key_move,
            _refreshed(key_refresh, joint, state.particles.positions, new),
            lambda position: joint.log_density(new, position),
            steps=self.moves,
            kernel=self.kernel,
            step_size=self.step_size,
            step_state=state.step_state,
        )
        state = ChainState(Particles.equal(run.positions), run.step_state)
        return state, _cloud(joint, new.base, state, self.step_size, run.acceptance)

    def log_z(self, key, joint, state, model, t):
        """Bridge from fresh draws of the base."""
        return _log_z_by_bridge(key, joint, model, self.kernel, self.step_size, state.step_state)


class WarmSmc(AbstractParticles):
    """Sequential Monte Carlo from the previous model to the current one.

    Args:
        n: number of particles.
        moves: kernel steps at each temperature.
        temperatures: steps of the bridge between two successive models; one suffices unless updates are large.
        ess_threshold: resample when ESS/N falls below this.
        kernel: MALA by default.
        step_size: one shared step size by default.
    """

    n: int = eqx.field(static=True, default=1000)
    moves: int = eqx.field(static=True, default=3)
    temperatures: int = eqx.field(static=True, default=1)
    ess_threshold: float = eqx.field(static=True, default=0.8)
    kernel: AbstractKernel = Mala()
    step_size: AbstractStepSize = SharedStepSize()

    def init(self, key, joint, base, t):
        """Start from draws of prior and base."""
        return ChainState(Particles.equal(joint.draws(key, base, self.n)), self.step_size.init(self.n))

    def advance(self, key, joint, state, old, new, batch):
        """Bridge, then offer fresh draws."""
        key_bridge, key_refresh = jr.split(key)

        def log_ratio(position):
            seen = joint.seen(new.base, position)
            return old.energy(*seen) - new.energy(*seen)

        particles, info = bridge(
            key_bridge,
            state.particles,
            lambda position: joint.log_density(old, position),
            lambda position: joint.log_density(new, position),
            kernel=self.kernel,
            step_size=self.step_size,
            step_state=state.step_state,
            moves=self.moves,
            temperatures=self.temperatures,
            ess_threshold=self.ess_threshold,
            log_ratio=log_ratio,
        )
        positions = _refreshed(key_refresh, joint, particles.positions, new)
        state = ChainState(Particles(positions, particles.log_weights), info.step_state)
        return state, _cloud(joint, new.base, state, self.step_size, info.acceptance)

    def log_z(self, key, joint, state, model, t):
        """Bridge from fresh draws of the base."""
        return _log_z_by_bridge(key, joint, model, self.kernel, self.step_size, state.step_state)


def _cloud(joint, base, state: ChainState, step_size: AbstractStepSize, acceptance) -> Cloud:
    seen = jax.vmap(lambda position: joint.seen(base, position))(state.particles.positions)
    size = jnp.mean(step_size.value(state.step_state))
    return Cloud(seen, state.particles.log_weights, of_base=False, acceptance=acceptance, step_size=size)


def _refreshed(key, joint: JointSpace, positions, model: TiltedModel):
    key_draw, key_accept = jr.split(key)
    proposals = joint.draws(key_draw, model.base, positions.shape[0])
    positions, _ = refresh(key_accept, positions, proposals, lambda position: joint.log_tilt(model, position))
    return positions


def _log_z_by_bridge(key, joint: JointSpace, model: TiltedModel, kernel, step_size, step_state):
    """Carry draws of the base to the model in a few temperatures: unbiased for Z_pi, however far apart they are."""
    key_draw, key_bridge = jr.split(key)
    _, info = bridge(
        key_bridge,
        Particles.equal(joint.draws(key_draw, model.base, 2000)),
        lambda position: joint.log_reference(model.base, position),
        lambda position: joint.log_density(model, position),
        kernel=kernel,
        step_size=step_size,
        step_state=step_state,
        moves=2,
        temperatures=10,
        ess_threshold=0.5,
        log_ratio=lambda position: joint.log_tilt(model, position),
    )
    return info.log_z, info.ess
