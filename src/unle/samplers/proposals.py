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
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from unle.errors import InputError
from unle.samplers.inner import Family
from unle.samplers.kernels import LogDensity
from unle.samplers.particles import Whitening
from unle.samplers.sweep import TemperedParticles, evaluate, langevin_log_ratio, langevin_steps, walk_once


class ExchangeTarget(NamedTuple):
    """A doubly intractable posterior p(u) f(u) / Z(u)^rows."""

    log_prior: LogDensity  # log p of one u
    log_likelihood: LogDensity  # log f of all rows of the data at one u, with all Z(u) left out
    family: Family  # target g(v | c) that share Z with the likelihood
    # from u to the condition c of the family; c = u by default
    condition: Callable[[Float[Array, " dim"]], Any] = lambda u: u
    rows: int = 1  # i.i.d. rows of the data.
    log_z: LogDensity | None = None  # approximation of log Z(u) of one row, up to a constant; zero by default

    def log_z_of_rows(self, u: Float[Array, " dim"]) -> Float[Array, ""]:
        """Return log Z^, the approximation for all rows together."""
        return jnp.zeros((), u.dtype) if self.log_z is None else self.rows * self.log_z(u)

    def log_tilt(self, u: Float[Array, " dim"]) -> Float[Array, ""]:
        """Return log f - log Z^, the surrogate's log-likelihood."""
        return self.log_likelihood(u) - self.log_z_of_rows(u)


class OuterState(NamedTuple):
    """Chains, and what was computed at their positions."""

    particles: TemperedParticles  # positions, with the log prior and the surrogate's log-likelihood
    log_z: Float[Array, " chain"]  # the surrogate's log Z^
    # of the surrogate posterior in whitened coordinates; zeros if the proposal uses none
    gradient: Float[Array, "chain dim"]

    @property
    def log_target(self) -> Float[Array, " chain"]:
        """Return log p f, with Z left out."""
        return self.particles.at(jnp.ones(())) + self.log_z


class Proposed(NamedTuple):
    """A proposal of every chain, and the log of the acceptance ratio with Z(u) / Z(u') left out."""

    state: OuterState
    log_ratio: Float[Array, " chain"]


class AbstractProposal(eqx.Module):
    """How chains propose."""

    target_acceptance: eqx.AbstractVar[float]  # at which the shared step size aims

    def init(self, positions: Float[Array, "chain dim"], target: ExchangeTarget, whitening: Whitening) -> OuterState:
        """Evaluate the target at the chains' positions."""
        del whitening
        particles = evaluate(positions, target.log_prior, target.log_tilt)
        return OuterState(particles, jax.vmap(target.log_z_of_rows)(positions), jnp.zeros_like(positions))

    @abc.abstractmethod
    def propose(
        self,
        key: PRNGKeyArray,
        state: OuterState,
        target: ExchangeTarget,
        whitening: Whitening,
        archive: Float[Array, "archive dim"],
        step_size: Float[Array, ""],
    ) -> Proposed:
        """Propose for every chain.

        `whitening` are coordinates in which one step size fits all directions, `archive` fixed points like those of the
        target.
        """


class Walk(AbstractProposal):
    """A Gaussian step with the covariance of the whitening."""

    # Lower than without an auxiliary variable, whose noise costs acceptance that no step size can win back.
    target_acceptance: float = eqx.field(static=True, default=0.25)

    def propose(self, key, state, target, whitening, archive, step_size):
        positions = state.particles.positions
        noise = jr.normal(key, (positions.size,)).reshape(positions.shape)
        proposed = self.init(positions + step_size * noise @ whitening.factor.T, target, whitening)
        return Proposed(proposed, proposed.log_target - state.log_target)


class Langevin(AbstractProposal):
    """A step along the gradient of the surrogate posterior, in whitened coordinates.

    Worth it in more than about five dimensions, and with a log Z^ at hand: without one the gradient may point to where
    the unknown Z(u) is large.
    """

    target_acceptance: float = eqx.field(static=True, default=0.4)

    def init(self, positions, target, whitening):

        def surrogate(u):
            return target.log_prior(u) + target.log_tilt(u)

        gradient = jax.vmap(jax.grad(surrogate))(positions) @ whitening.factor
        state = super().init(positions, target, whitening)
        return state._replace(gradient=jnp.where(jnp.isfinite(gradient), gradient, 0.0))

    def propose(self, key, state, target, whitening, archive, step_size):
        positions = state.particles.positions
        noise = jr.normal(key, (positions.size,)).reshape(positions.shape)
        steps = langevin_steps(noise, state.gradient, step_size)
        proposed = self.init(positions + steps @ whitening.factor.T, target, whitening)
        log_ratio = proposed.log_target - state.log_target
        return Proposed(proposed, log_ratio + langevin_log_ratio(noise, state.gradient, proposed.gradient, step_size))


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

    def propose(self, key, state, target, whitening, archive, step_size):
        """Walk under the surrogate; its density at both ends cancels."""
        n, dim = state.particles.positions.shape
        key_normal, key_uniform = jr.split(key)
        normals = jr.normal(key_normal, (self.moves * n * dim,)).reshape(self.moves, n, dim)
        uniforms = jr.uniform(key_uniform, (self.moves * 6 * n,)).reshape(self.moves, 6, n)

        def one(particles, randomness):
            whole = jnp.ones(())  # temperature
            return walk_once(randomness, particles, target.log_prior, target.log_tilt, whole, whitening, archive)

        particles, _ = jax.lax.scan(one, state.particles, (normals, uniforms))
        log_z = jax.vmap(target.log_z_of_rows)(particles.positions)
        return Proposed(OuterState(particles, log_z, state.gradient), log_z - state.log_z)
