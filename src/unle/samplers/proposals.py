r"""Outer moves of the exchange algorithm: where a chain over parameters proposes to go.

The target is $p(u)\,f(u) / Z(u)$ with Z unknown. A proposal returns the part of the log acceptance ratio that it can
compute, with Z left out; the auxiliary variable supplies an unbiased estimate of the missing $Z(u) / Z(u')$.

* `Walk` and `Langevin` make one step. The covariance of the steps is that of a whitening fitted in the warm-up.
* `SurrogateWalks` makes many steps at once under the surrogate posterior $p f / \hat Z$, which an approximation of Z
  provides. Any reversible sequence of steps proposes u', and p f cancels: $\hat Z(u') / \hat Z(u)$ is all that is left.
  Steps under the surrogate are cheap and may cross between modes, and only their end is paid for with an auxiliary
  draw. With a perfect surrogate and perfect auxiliary draws of small variance, all ends are accepted.
"""

import abc
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from unle.errors import InputError
from unle.samplers.kernels import LogDensity
from unle.samplers.sweep import TemperedParticles, evaluate, walk_once
from unle.samplers.whitening import Whitening


class OuterDensities(NamedTuple):
    """What is known of the target p f / Z at one u.

    Attributes:
        log_prior: log p.
        log_likelihood: log f, with Z left out.
        log_z: an approximation of log Z, up to a constant; zero is one.
    """

    log_prior: LogDensity
    log_likelihood: LogDensity
    log_z: LogDensity

    def log_tilt(self, u: Float[Array, " dim"]) -> Float[Array, ""]:
        """Return log f - log Z^, the surrogate's log-likelihood."""
        return self.log_likelihood(u) - self.log_z(u)


class OuterState(NamedTuple):
    """Chains, and what was computed at their positions.

    Attributes:
        particles: positions, with the log prior and the surrogate's log-likelihood.
        log_z: the surrogate's log Z^.
        gradient: of the surrogate posterior in whitened coordinates; zeros if the proposal uses none.
    """

    particles: TemperedParticles
    log_z: Float[Array, " chain"]
    gradient: Float[Array, "chain dim"]

    @property
    def log_target(self) -> Float[Array, " chain"]:
        """Return log p f, with Z left out."""
        return self.particles.at(jnp.ones(())) + self.log_z


class Proposed(NamedTuple):
    """A proposal of every chain.

    Attributes:
        state: where the chains would be.
        log_ratio: log of the acceptance ratio, with Z(u) / Z(u') left out.
        acceptance: acceptance probability of the steps under the surrogate; 1 where there were none.
    """

    state: OuterState
    log_ratio: Float[Array, " chain"]
    acceptance: Float[Array, " chain"]


class AbstractProposal(eqx.Module):
    """How chains propose.

    Attributes:
        target_acceptance: at which the shared step size aims.
    """

    target_acceptance: eqx.AbstractVar[float]

    @abc.abstractmethod
    def init(self, positions: Float[Array, "chain dim"], densities: OuterDensities, whitening: Whitening) -> OuterState:
        """Evaluate the densities at the chains' positions."""

    @abc.abstractmethod
    def propose(
        self,
        key: PRNGKeyArray,
        state: OuterState,
        densities: OuterDensities,
        whitening: Whitening,
        archive: Float[Array, "archive dim"],
        step_size: Float[Array, ""],
    ) -> Proposed:
        """Propose for every chain.

        Args:
            key: randomness of the proposals.
            state: from `init`, or accepted.
            densities: of the target.
            whitening: coordinates in which one step size fits all directions.
            archive: points like those of the target, fixed.
            step_size: one for all chains.
        """


class Walk(AbstractProposal):
    """A Gaussian step with the covariance of the whitening."""

    # Lower than without an auxiliary variable, whose noise costs acceptance that no step size can win back.
    target_acceptance: float = eqx.field(static=True, default=0.25)

    def init(self, positions, densities, whitening):
        """Evaluate the densities."""
        return _evaluated(positions, densities)

    def propose(self, key, state, densities, whitening, archive, step_size):
        """Step once."""
        positions = state.particles.positions
        noise = jr.normal(key, (positions.size,)).reshape(positions.shape)
        proposed = self.init(positions + step_size * noise @ whitening.factor.T, densities, whitening)
        return Proposed(proposed, proposed.log_target - state.log_target, jnp.ones(len(positions)))


class Langevin(AbstractProposal):
    """A step along the gradient of the surrogate posterior, in whitened coordinates.

    Worth it in more than about five dimensions, and with a log Z^ at hand: without one the gradient may point to where
    the unknown Z(u) is large.
    """

    target_acceptance: float = eqx.field(static=True, default=0.4)

    def init(self, positions, densities, whitening):
        """Evaluate the densities and the gradient."""

        def surrogate(u):
            return densities.log_prior(u) + densities.log_tilt(u)

        gradient = jax.vmap(jax.grad(surrogate))(positions) @ whitening.factor
        return _evaluated(positions, densities)._replace(gradient=jnp.where(jnp.isfinite(gradient), gradient, 0.0))

    def propose(self, key, state, densities, whitening, archive, step_size):
        """Step once; the reverse step's noise gives the ratio of proposal densities, as in `Sweep`."""
        positions = state.particles.positions
        noise = jr.normal(key, (positions.size,)).reshape(positions.shape)
        steps = step_size * state.gradient + jnp.sqrt(2 * step_size) * noise
        proposed = self.init(positions + steps @ whitening.factor.T, densities, whitening)
        reverse = noise + jnp.sqrt(0.5 * step_size) * (state.gradient + proposed.gradient)
        log_ratio = proposed.log_target - state.log_target + 0.5 * jnp.sum(noise**2 - reverse**2, axis=1)
        return Proposed(proposed, log_ratio, jnp.ones(len(positions)))


class SurrogateWalks(AbstractProposal):
    """Many walks under the surrogate posterior: differences of archive points or Gaussian steps, of random scales.

    Attributes:
        moves: walks per proposal. The walks are one kernel repeated, hence reversible together.
        target_acceptance: unused; scales are random.
    """

    moves: int = eqx.field(static=True, default=10)
    target_acceptance: float = eqx.field(static=True, default=0.25)

    def __check_init__(self):
        if self.moves < 1:
            raise InputError(f"expected moves >= 1; got {self.moves}; try SurrogateWalks().")

    def init(self, positions, densities, whitening):
        """Evaluate the densities."""
        return _evaluated(positions, densities)

    def propose(self, key, state, densities, whitening, archive, step_size):
        """Walk under the surrogate; its density at both ends cancels."""
        n, dim = state.particles.positions.shape
        key_normal, key_uniform = jr.split(key)
        normals = jr.normal(key_normal, (self.moves * n * dim,)).reshape(self.moves, n, dim)
        uniforms = jr.uniform(key_uniform, (self.moves * 6 * n,)).reshape(self.moves, 6, n)

        log_prior = densities.log_prior

        def one(particles, randomness):
            return walk_once(randomness, particles, log_prior, densities.log_tilt, jnp.ones(()), whitening, archive)

        particles, acceptance = jax.lax.scan(one, state.particles, (normals, uniforms))
        log_z = jax.vmap(densities.log_z)(particles.positions)
        proposed = OuterState(particles, log_z, state.gradient)
        return Proposed(proposed, log_z - state.log_z, jnp.full(n, jnp.mean(acceptance)))


def _evaluated(positions: Float[Array, "chain dim"], densities: OuterDensities) -> OuterState:
    particles = evaluate(positions, densities.log_prior, densities.log_tilt)
    return OuterState(particles, jax.vmap(densities.log_z)(positions), jnp.zeros_like(positions))
