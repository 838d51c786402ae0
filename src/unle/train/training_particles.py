r"""Particles that follow a tilted model while it trains, and the spaces in which they live.

The gradient of the log-likelihood needs an expectation under the model of the moment.  Ways to follow it:

* draws of the base with weights exp(-E), here: no chains, hence nothing that could fail to mix, as long as the base is
  near enough for many draws to count (a dozen dimensions or so).  `BaseParticles` draws parameters from the prior,
  `DataParticles` takes those of the data;
* particles that Markov kernels move under the new model, or at the parameters of each pair:
  `unle.train.persistent_particles`.

`JointSpace`: a position is (a, v), where a are the prior's unconstrained coordinates u, shifted and scaled to unit
spread under the prior, and v the base's coordinates of w.  There the tilted model reads

    log q(a, v) = log p(u(a)) + log q0(v) - E + const,

smooth on all of R^(d + k), with every direction of about unit scale, whatever the prior's walls or units are.

`DataSpace`: a position is (t, v), where t are the parameters of one of the data.  In the place of p is the distribution
of these, even over all of them; its density need not be known, and no kernel moves t.
"""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from unle.compiling import keys, on_device
from unle.models import AbstractBase, EnergyModel
from unle.samplers import ess, log_mean_exp, systematic_indices
from unle.space import Prior, ThetaSpace, unconstrained_draws

SCALE_DRAWS = 2000  # as many as posteriors begin with by default: one program makes both
Seen = tuple[Float[Array, "particle dim"], Float[Array, "particle seen"]]  # (t, r): what an energy sees
GOLDEN = 0.6180339887


class AbstractSpace(eqx.Module):
    """Where particles live: the parameters, in some coordinates, followed by v."""

    @property
    @abc.abstractmethod
    def n_fixed(self) -> int:
        """How many coordinates, the first ones, no kernel may move."""

    @abc.abstractmethod
    def draws(self, key: PRNGKeyArray, base: AbstractBase, n: int) -> Float[Array, "n position"]:
        """Draw n positions of the parameters' distribution and the base."""

    @abc.abstractmethod
    def log_reference(self, base: AbstractBase, position: Float[Array, " position"]) -> Float[Array, ""]:
        """Return the log-density of these draws at a position, up to a constant."""

    @abc.abstractmethod
    def parts(self, position: Float[Array, " position"]) -> tuple[Array, Array]:
        """Return t and v at a position."""

    def seen(self, base: AbstractBase, position: Float[Array, " position"]) -> tuple[Array, Array]:
        """Return (t, r) at a position: what an energy sees."""
        t, v = self.parts(position)
        return t, base.features_whitened(t, v)

    def log_tilt(self, model: EnergyModel, position: Float[Array, " position"]) -> Float[Array, ""]:
        """Return -E at a position."""
        return model.log_tilt_whitened(*self.parts(position))

    def log_density(self, model: EnergyModel, position: Float[Array, " position"]) -> Float[Array, ""]:
        """Return the tilted model's log-density at a position, up to a constant."""
        return self.log_reference(model.base, position) + self.log_tilt(model, position)


class JointSpace(AbstractSpace):
    """The coordinates (a, v), given the prior and the standardisation of theta."""

    prior: Prior
    theta_space: ThetaSpace
    centre: Float[Array, " dim"]
    scale: Float[Array, " dim"]

    @classmethod
    def of(cls, prior: Prior, theta_space: ThetaSpace) -> "JointSpace":
        """Measure the spread of u under the prior."""
        key = jr.key(0)  # fixed: the coordinates are no source of randomness
        u = np.asarray(unconstrained_draws(prior, keys(key, 1), SCALE_DRAWS))[0]
        return cls(prior, theta_space, on_device(u.mean(axis=0), u.dtype), on_device(u.std(axis=0), u.dtype))

    @property
    def n_fixed(self):
        return 0

    def draws(self, key, base, n):
        key_theta, key_data = jr.split(key)
        u = jax.vmap(self.prior.unconstrain)(self.prior.draws(key_theta, n))
        v = base.draws_whitened(key_data, n)
        return jnp.concatenate([(u - self.centre) / self.scale, v], axis=1)

    def position_of(self, t: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """Return the coordinates a of standardised parameters t; the middle, where rounding put t beyond a wall."""
        a = (self.prior.unconstrain(self.theta_space.inverse(t)) - self.centre) / self.scale
        return jnp.where(jnp.isfinite(a), a, 0.0)

    def log_reference(self, base, position):
        dim = self.centre.shape[0]
        u = self.centre + self.scale * position[:dim]
        return self.prior.log_density_unconstrained(u) + base.log_density_whitened(position[dim:])

    def parts(self, position):
        dim = self.centre.shape[0]
        theta = self.prior.constrain(self.centre + self.scale * position[:dim])
        return self.theta_space.forward(theta), position[dim:]


class DataSpace(AbstractSpace):
    """The coordinates (t, v), over the parameters of data."""

    t: Float[Array, "n dim"]  # standardised parameters of the data

    @property
    def n_fixed(self):
        """The parameters: only a draw brings other ones."""
        return self.t.shape[1]

    def draws(self, key, base, n):
        key_rows, key_data = jr.split(key)
        rows = jr.randint(key_rows, (n,), 0, self.t.shape[0])
        return jnp.concatenate([self.t[rows], base.draws_whitened(key_data, n)], axis=1)

    def log_reference(self, base, position):
        """Return log q0(v): all parameters of the data are as likely."""
        return base.log_density_whitened(position[self.n_fixed :])

    def parts(self, position):
        return position[: self.n_fixed], position[self.n_fixed :]


class Batch(NamedTuple):
    """Data of one iteration: which rows, and their parameters."""

    rows: Int[Array, " batch"]
    t: Float[Array, "batch dim"]


class ParticleBatch(NamedTuple):
    """The particles of one moment, and how they came about."""

    seen: Seen  # (t, r) of each particle
    # weights that make them a sample of the model; without the factor exp(-E) where `of_base` is set
    log_weights: Float[Array, " particle"]
    of_base: bool  # whether exp(-E) is still missing from the weights; the gradient evaluates E there anyway
    acceptance: Float[Array, ""]  # mean acceptance probability of the moves that made them; 1 if there were none
    step_size: Float[Array, ""]  # of these moves; 0 if there were none


class AbstractParticles(eqx.Module):
    """How particles follow a model that changes.  States are pytrees that only their own class reads."""

    @property
    @abc.abstractmethod
    def normaliser_draws(self) -> int:
        """How many draws `log_z` rests on."""

    @property
    def at_data(self) -> bool:
        """Whether the particles' parameters are those of the data; otherwise they follow the prior."""
        return True

    @abc.abstractmethod
    def init(self, key: PRNGKeyArray, joint: JointSpace, base: AbstractBase, t: Float[Array, "n dim"]) -> Any:
        """Return a state for a model whose energy is still constant; t are the parameters of all data."""

    @abc.abstractmethod
    def advance(
        self, key: PRNGKeyArray, joint: JointSpace, state: Any, old: EnergyModel, new: EnergyModel, batch: Batch
    ) -> tuple[Any, ParticleBatch]:
        """Turn particles of the old model into particles of the new one.

        `state` is that of the previous call; only particles that belong to data look at the batch.
        """

    def started(self, state: Any, known: Any) -> Any:
        """Take over the particles of a warm start, if there are any; nothing to do for most."""
        return state

    def renew(self, key: PRNGKeyArray, joint: JointSpace, state: Any, model: EnergyModel) -> Any:
        """Prepare for another chunk of training, with the model as it is now; nothing to do for most."""
        return state

    @abc.abstractmethod
    def log_z(
        self, key: PRNGKeyArray, joint: JointSpace, state: Any, model: EnergyModel, t: Float[Array, "m dim"]
    ) -> tuple[Float[Array, "*m"], Float[Array, ""]]:
        """Estimate the log-normaliser of a model, and return the smallest ESS/N met on the way.

        It is one number, log Z_pi, for a tilted model; for a conditional one it is log Z at each of the m points t.
        """


def some_rows(key: PRNGKeyArray, rows: Float[Array, "n k"], most: int) -> Float[Array, "m k"]:
    """Return all rows, or a random sample of `most` (with replacement) where there are more.

    The first rows of a table are no sample of it: sequential runs store simulations round by round, people sort them.
    """
    n = rows.shape[0]
    return rows if n <= most else rows[jr.randint(key, (most,), 0, n)]


class PoolState(NamedTuple):
    """A pool of particles of the model as it was when the pool was made."""

    shift: Float[Array, ""]  # where combs through the pool begin, in [0, 1)
    t: Float[Array, "m dim"]  # parameters of data: all of them, or a random sample as large as a pool
    seen: Seen  # (t, r) of every particle
    energies: Float[Array, " pool"]  # E of every particle at that time; zero before


def _next(shift: Float[Array, ""]) -> Float[Array, ""]:
    """Return the next shift: steps of the golden section fill [0, 1) evenly, however many there are."""
    return (shift + GOLDEN) % 1.0


class BaseParticles(AbstractParticles):
    """Importance sampling from the base, with other particles at every iteration.

    A pool of draws is resampled in proportion to exp(-E) as it is when the pool is made; particles are taken from it,
    and weighed by what the energy has changed since: nearly even weights, and no chain that could fail to mix.  Every
    chunk has a pool of its own: an energy over-fits the draws of a pool that is kept.

    Args:
        n: particles per iteration.
        pool: draws of prior and base made for each chunk, from which they are taken; up to twice as many.
        validation: draws by which Z_pi is estimated; up to twice as many.
    """

    n: int = eqx.field(static=True, default=256)
    pool: int = eqx.field(static=True, default=16384)
    validation: int = eqx.field(static=True, default=8192)

    @property
    def normaliser_draws(self):
        return self.validation

    @property
    def at_data(self):
        return False

    def init(self, key, joint, base, t):
        """Return an empty pool, of the right shape; `renew` fills it."""
        key_rows, key = jr.split(key)
        t = some_rows(key_rows, t, self.pool)
        shapes = jax.eval_shape(lambda: self._draws(key, joint, base, t, self.pool))
        seen = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        return PoolState(jr.uniform(key), t, seen, jnp.zeros(seen[0].shape[0]))

    def renew(self, key, joint, state, model):
        """Draw another pool, evaluate the energy on all of it, and resample."""
        seen = self._draws(key, joint, model.base, state.t, self.pool)
        energies = jax.vmap(model.energy)(*seen)
        chosen = systematic_indices(state.shift, -energies)
        return PoolState(_next(state.shift), state.t, *jax.tree.map(lambda leaf: leaf[chosen], (seen, energies)))

    def advance(self, key, joint, state, old, new, batch):
        """Take n of the pool, to be weighed by exp(E when it was made - E)."""
        size = state.energies.shape[0]
        comb = (jnp.arange(self.n) + state.shift) / self.n  # neighbours in the pool may be copies
        rows = jnp.minimum((size * comb).astype(int), size - 1)
        seen = jax.tree.map(lambda leaf: leaf[rows], state.seen)
        unmoved = {"acceptance": jnp.ones(()), "step_size": jnp.zeros(())}
        taken = ParticleBatch(seen, state.energies[rows], of_base=True, **unmoved)
        return state._replace(shift=_next(state.shift)), taken

    def log_z(self, key, joint, state, model, t):
        seen = self._draws(key, joint, model.base, state.t, self.validation)
        log_weights = -jax.vmap(model.energy)(*seen)
        return log_mean_exp(log_weights), ess(log_weights)

    def _draws(
        self, key: PRNGKeyArray, joint: JointSpace, base: AbstractBase, t: Float[Array, "m dim"], n: int
    ) -> Seen:
        """Draw n pairs (t, r) of prior and base (subclasses: up to 2 n, and at the parameters t of the data)."""
        positions = joint.draws(key, base, n)
        return jax.vmap(lambda position: joint.seen(base, position))(positions)


class DataParticles(BaseParticles):
    r"""Importance sampling from the base at the parameters of the data, instead of draws of the prior.

    The tilted model is then that of the distribution the data's parameters came from, a prior or the proposals of
    several rounds, whose density need not be known:

        q(t, w) = pi(t) q0(w | t) exp(-E(t, w)) / Z_pi,   Z_pi = E_{t ~ pi, w ~ q0}[exp(-E)].

    Maximum likelihood makes Z(t) the same wherever data are, so the posterior is an ordinary one.  And as data and
    particles share their parameters, the energy does not learn how the parameters happen to be spread.
    """

    @property
    def at_data(self):
        return True

    def _draws(self, key, joint, base, t, n):
        """Draw data at the parameters t, as often at each: what depends on t alone is done once.

        If there are more of them than draws, a random sample takes part.
        """
        m = min(t.shape[0], n)
        copies = -(-n // m)
        if m < t.shape[0]:
            key_rows, key = jr.split(key)
            t = some_rows(key_rows, t, m)
        v = base.draws_whitened(key, m * copies).reshape(m, copies, -1)
        r = jax.vmap(lambda t, copies: jax.vmap(lambda v: base.features_whitened(t, v))(copies))(t, v)
        return jnp.repeat(t, copies, axis=0), r.reshape(m * copies, -1)
