r"""Carry a particle set from one density to another: sequential Monte Carlo along a geometric path.

Between two densities known up to constants, $\pi_0 = \tilde\pi_0 / Z_0$ and $\pi_1 = \tilde\pi_1 / Z_1$, lie
$\tilde\pi_t = \tilde\pi_0^{1-t}\,\tilde\pi_1^{t}$. At each of T equal temperature steps the particles are

1. **reweighted** by $v_i = (\tilde\pi_1(x_i) / \tilde\pi_0(x_i))^{1/T}$,
2. **resampled** if the effective sample size has become small, else they keep their weights,
3. **moved** by a Markov kernel that leaves the *new* density invariant.

The product of the weighted means $\sum_i W_i v_i$ estimates $Z_1 / Z_0$ without bias. Because the moves come
last and aim at the new density, the weighted particles can be used at once.

With T = 1 this is the step that keeps particles up to date while a model trains: one parameter update
changes the density a little, one reweighting corrects for it exactly, a few moves restore diversity.

References:
    Del Moral, Doucet and Jasra (2006), Sequential Monte Carlo samplers.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, PRNGKeyArray

from unle.errors import InputError
from unle.samplers.chains import run_chains_given
from unle.samplers.kernels import AbstractKernel, LogDensity, Mala
from unle.samplers.particles import Particles, ess, normalise, systematic_indices
from unle.samplers.step_size import AbstractStepSize, SharedStepSize, StepSizeState


class BridgeInfo(NamedTuple):
    """How a bridge went."""

    log_z: Float[Array, ""]  # estimate of log Z_1 - log Z_0
    ess: Float[Array, ""]  # the smallest ESS/N met along the path, after reweighting and before resampling
    acceptance: Float[Array, ""]  # mean acceptance probability of the moves (1 if there were none)
    resampled: Float[Array, ""]  # the share of temperatures at which the particles were resampled
    step_state: StepSizeState  # the step-size controller's state, to be handed to the next bridge


class Path(NamedTuple):
    """From one density to another."""

    log_from: LogDensity  # log of the density the particles stand for, up to a constant; one point
    log_to: LogDensity  # log of the target density, up to a constant; its support must lie within that of `log_from`
    # `log_to - log_from` of one point, where it is cheaper than the two (common factors cancel)
    log_ratio: LogDensity | None = None
    # the first n_fixed coordinates are not moved by a kernel; resampling alone changes how often they occur
    n_fixed: int = 0

    def ratio(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        """Return log_to - log_from at a point."""
        return self.log_to(x) - self.log_from(x) if self.log_ratio is None else self.log_ratio(x)

    def between(self, fraction: Float[Array, ""]) -> LogDensity:
        """Return the density at a fraction of the way."""
        return lambda x: (1 - fraction) * self.log_from(x) + fraction * self.log_to(x)


def bridge(
    key: PRNGKeyArray,  # randomness of the bridge
    particles: Particles,  # a weighted sample of `path.log_from`
    path: Path,  # the two densities
    *,
    kernel: AbstractKernel | None = None,  # how a particle moves; MALA by default
    step_size: AbstractStepSize | None = None,  # the controller of the step size; one shared step size by default
    step_state: StepSizeState | None = None,  # the controller's state from an earlier bridge; None starts it
    moves: int = 5,  # kernel steps at each temperature; 0 makes this importance sampling
    temperatures: int = 1,  # number T of equal steps along the path
    ess_threshold: float = 0.5,  # resample when ESS/N falls below this; 0 never resamples, 1 always does
) -> tuple[Particles, BridgeInfo]:
    """Carry particles of one density to another. Meant to be called inside `jax.jit`.

    Returns:
        The particles of `path.log_to`, weighted, and a `BridgeInfo`.

    Example:
        >>> import jax.numpy as jnp, jax.random as jr
        >>> from unle.samplers import Particles, Path, bridge
        >>> particles = Particles.equal(jr.normal(jr.key(0), (1000, 1)))
        >>> narrow = lambda x: -2.0 * jnp.sum(x**2)  # N(0, 1/4), unnormalised: Z_1 / Z_0 = 1/2
        >>> particles, info = bridge(jr.key(1), particles, Path(lambda x: -0.5 * jnp.sum(x**2), narrow))
        >>> abs(float(info.log_z) - float(jnp.log(0.5))) < 0.1
        True
    """
    _check(moves, temperatures, ess_threshold)
    kernel = Mala() if kernel is None else kernel
    step_size = SharedStepSize() if step_size is None else step_size
    n = particles.positions.shape[0]
    step_state = step_size.init(n) if step_state is None else step_state
    move = partial(run_chains_given, n_fixed=path.n_fixed, steps=moves, kernel=kernel, step_size=step_size)

    def one_temperature(carry, step):
        positions, log_weights, step_state = carry
        number, key = step
        key_resample, key_move = jr.split(key)

        ratio = jax.vmap(path.ratio)(positions)
        ratio = jnp.where(jnp.isfinite(ratio), ratio, -jnp.inf)
        log_weights = normalise(log_weights) + ratio / temperatures
        log_increment = logsumexp(log_weights)  # log sum_i W_i v_i, W_i the weights before this step
        share = ess(log_weights)

        resample = share < ess_threshold
        ancestors = jnp.where(resample, systematic_indices(jr.uniform(key_resample), log_weights), jnp.arange(n))
        positions = positions[ancestors]
        log_weights = jnp.where(resample, 0.0, log_weights)

        acceptance = jnp.ones(())
        if moves:
            # With one temperature the moves need no evaluation of `log_from`.
            density = path.log_to if temperatures == 1 else path.between(number / temperatures)
            run = move(key_move, positions, density, step_state=step_state)
            positions, step_state, acceptance = run.positions, run.step_state, run.acceptance
        return (positions, log_weights, step_state), (log_increment, share, acceptance, resample)

    steps = (jnp.arange(1, temperatures + 1), jr.split(key, temperatures))
    start = (particles.positions, particles.log_weights, step_state)
    (positions, log_weights, step_state), record = jax.lax.scan(one_temperature, start, steps)
    increments, shares, acceptances, resampled = record
    means = jnp.mean(acceptances), jnp.mean(1.0 * resampled)
    info = BridgeInfo(jnp.sum(increments), jnp.min(shares), *means, step_state)
    return Particles(positions, normalise(log_weights)), info


def _check(moves: int, temperatures: int, ess_threshold: float) -> None:
    if moves < 0 or temperatures < 1:
        raise InputError(
            f"expected moves >= 0 and temperatures >= 1; got {moves} and {temperatures}; try moves=5, temperatures=1"
        )
    if not 0 <= ess_threshold <= 1:
        raise InputError(f"expected 0 <= ess_threshold <= 1; got {ess_threshold}; try ess_threshold=0.5")
