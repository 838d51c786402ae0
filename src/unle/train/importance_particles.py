r"""Draws of the base with weights exp(-E), which follow a tilted model while it trains.

No chains, hence nothing that could fail to mix, as long as the base is near enough for many draws to count (a dozen
dimensions or so).  `BaseParticles` draws parameters from the prior, `DataParticles` takes those of the data.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from unle.models import AbstractBase
from unle.samplers import ess, log_mean_exp, systematic_indices
from unle.train.abstract_particles import AbstractParticles, ParticleBatch, Seen, some_rows
from unle.train.joint import JointSpace

GOLDEN = 0.6180339887


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
