r"""Many chains, many steps, one compiled loop.

* `run_chains` moves N chains for T steps inside one `lax.scan`, adapting the step size as it goes. It returns the last
  positions, which the next call can start from, and on request a thinned record.
* `run_chains_each` gives every chain a step size of its own, `run_chains_given` keeps some coordinates fixed.
* `refresh` makes a global move. Where a target is a reference density times a tilt, pi(x) \propto rho(x) exp(s(x)), and
  rho can be drawn from, a draw y of rho accepted with probability min(1, exp(s(y) - s(x))) leaves pi invariant. Such
  moves are rarely accepted far from rho, but one that is may cross to another mode, which local kernels never do.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from unle.errors import InputError
from unle.samplers.kernels import AbstractKernel, Mala
from unle.samplers.particles import Room, over_devices
from unle.samplers.step_size import AbstractStepSize, PerChainStepSize, SharedStepSize, StepSizeState


class ChainRun(NamedTuple):
    """Where the chains are after a run."""

    positions: Float[Array, "chain dim"]  # the last position of each chain
    step_state: StepSizeState  # the step-size controller's state, to be handed to the next run
    acceptance: Float[Array, ""]  # acceptance probability, averaged over chains and steps
    moved: Float[Array, " chain"]  # for each chain, the share of steps in which it moved; 0 is a stuck chain
    draws: Float[Array, "chain draw dim"] | None  # the kept draws, (chain, draw, dim), or None if none were asked for


def run_chains(
    key: PRNGKeyArray,  # randomness of the run
    positions: Float[Array, "chain dim"],  # where each chain starts
    # log p of one point, up to a constant; with `conditions`, `log_density(x, condition)`
    log_density: Callable[..., Float[Array, ""]],
    *,
    steps: int,  # how often each chain moves
    kernel: AbstractKernel | None = None,  # how a chain moves; MALA by default
    step_size: AbstractStepSize | None = None,  # the controller of the step size; one shared step size by default
    step_state: StepSizeState | None = None,  # the controller's state from an earlier run; None starts it
    # a pytree of arrays with leading axis `chain`, when each chain has a target of its own (one parameter vector each,
    # say)
    conditions: Any = None,
    # number of draws to keep of each chain, evenly spaced over the run; must divide `steps`.  With a `Room`, chains end
    # after as many of them as are wanted.
    keep: int | Room = 0,
    adapt: bool = True,  # False freezes the step size, which makes the run an exactly invariant Markov chain
) -> ChainRun:
    """Move every chain `steps` times.

    The density is evaluated anew at the starting positions, so that chains may be carried over from a density
    that has changed since. Meant to be called inside `jax.jit`.

    Example:
        >>> import jax.numpy as jnp, jax.random as jr
        >>> from unle.samplers import run_chains
        >>> log_density = lambda x: -0.5 * jnp.sum(x**2)
        >>> run = run_chains(jr.key(0), jnp.zeros((8, 2)), log_density, steps=20, keep=5)
        >>> run.draws.shape
        (8, 5, 2)
    """
    kernel = Mala() if kernel is None else kernel
    step_size = SharedStepSize() if step_size is None else step_size
    keep, wanted = Room.of(keep)
    _check_run(positions, steps, keep)
    n_chains = positions.shape[0]
    step_state = step_size.init(n_chains) if step_state is None else step_state

    def density_of(condition):
        return log_density if condition is None else lambda x: log_density(x, condition)

    def move(key, state, epsilon, condition):
        return kernel.step(key, state, density_of(condition), epsilon)

    def one_step(carry, key):
        states, step_state, acceptance, moved = carry
        epsilon = jnp.broadcast_to(step_size.value(step_state), (n_chains,))
        states, info = jax.vmap(move)(jr.split(key, n_chains), states, epsilon, conditions)
        if adapt:
            step_state = step_size.update(step_state, info.acceptance, kernel.target_acceptance)
        return (states, step_state, acceptance + info.acceptance, moved + info.moved), None

    def one_block(carry, block):
        key, number = block

        def move_on(carry):
            return jax.lax.scan(one_step, carry, jr.split(key, steps // blocks))[0]

        carry = move_on(carry) if wanted is None else jax.lax.cond(number < wanted, move_on, lambda c: c, carry)
        return carry, (carry[0].position if keep else None)

    blocks = max(keep, 1)
    made = steps if wanted is None else steps // blocks * jnp.minimum(wanted, blocks)
    zeros = jnp.zeros(n_chains)
    states = jax.vmap(lambda x, condition: kernel.init(x, density_of(condition)))(over_devices(positions), conditions)
    start = (states, step_state, zeros, zeros)
    each = (jr.split(key, blocks), jnp.arange(blocks))
    (states, step_state, acceptance, moved), record = jax.lax.scan(one_block, start, each)
    # The scan stacks draws as (draw, chain, dim): swap the axes, a reshape would interleave the chains.
    draws = None if record is None else jnp.swapaxes(record, 0, 1)
    return ChainRun(states.position, step_state, jnp.mean(acceptance) / made, moved / made, draws)


def run_chains_each(
    key: PRNGKeyArray,
    positions: Float[Array, "chain dim"],
    log_density: Callable[..., Float[Array, ""]],
    *,
    steps: int,
    step_state: StepSizeState,
    kernel: AbstractKernel | None = None,
    conditions: Any = None,
) -> ChainRun:
    """Move every chain with a step size of its own: tuned in the first half of the steps, frozen in the second.

    A chain in a steep region, where the common step is far too long, finds a shorter one. All begin with the step size
    of `step_state`, from a `SharedStepSize`; it becomes the geometric mean of what they end with. Other arguments are
    those of `run_chains`.
    """
    if steps < 2:
        raise InputError(f"expected steps >= 2, of which the first half tunes; got {steps}; try steps=60")
    key_tune, key_run = jr.split(key)
    n, own = positions.shape[0], PerChainStepSize()
    start = own.init(n)._replace(log_step=jnp.broadcast_to(step_state.log_step, (n,)))
    move = partial(run_chains, log_density=log_density, kernel=kernel, step_size=own, conditions=conditions)
    tuned = move(key_tune, positions, steps=steps // 2, step_state=start)
    run = move(key_run, tuned.positions, steps=steps - steps // 2, step_state=tuned.step_state, adapt=False)
    return run._replace(step_state=step_state._replace(log_step=jnp.mean(tuned.step_state.log_step)))


def run_chains_given(
    key: PRNGKeyArray,
    positions: Float[Array, "chain dim"],
    log_density: Callable[[Float[Array, " dim"]], Float[Array, ""]],
    *,
    n_fixed: int,
    steps: int,
    kernel: AbstractKernel | None = None,
    step_size: AbstractStepSize | None = None,
    step_state: StepSizeState | None = None,
) -> ChainRun:
    """Keep the first `n_fixed` coordinates of every chain fixed and move the rest: the target is the rest given these.

    `log_density` is that of a whole point. Other arguments are those of `run_chains`.
    """
    move = partial(run_chains, steps=steps, kernel=kernel, step_size=step_size, step_state=step_state)
    if n_fixed == 0:
        return move(key, positions, log_density)

    def density_given(moving, fixed):
        return log_density(jnp.concatenate([fixed, moving]))

    fixed = positions[:, :n_fixed]
    run = move(key, positions[:, n_fixed:], density_given, conditions=fixed)
    return run._replace(positions=jnp.concatenate([fixed, run.positions], axis=1))


def refresh(
    key: PRNGKeyArray,
    positions: Float[Array, "chain dim"],
    proposals: Float[Array, "chain dim"],
    log_tilt: Callable[[Float[Array, " dim"]], Float[Array, ""]],
) -> tuple[Float[Array, "chain dim"], Float[Array, ""]]:
    """Offer every chain one independent draw of the reference density; return positions, and the share accepted.

    `log_tilt` is s, the log of target over reference, at one point.
    """
    old, new = jax.vmap(log_tilt)(positions), jax.vmap(log_tilt)(proposals)
    old = jnp.where(jnp.isfinite(old), old, -jnp.inf)  # a chain outside the support accepts any proposal inside
    accepted = jnp.isfinite(new) & (jnp.log(jr.uniform(key, new.shape)) < new - old)
    return jnp.where(accepted[:, None], proposals, positions), jnp.mean(accepted)


def _check_run(positions, steps: int, keep: int) -> None:
    if positions.ndim != 2 or positions.shape[0] < 1:
        raise InputError(f"expected positions of shape (chain, dim); got {positions.shape}; try positions[None]")
    if steps < 1 or keep < 0:
        raise InputError(f"expected steps >= 1 and keep >= 0; got {steps} and {keep}; try steps=100")
    if keep and steps % keep:
        fitting = keep * (steps // keep + 1)
        raise InputError(f"expected `keep` to divide `steps`; got {keep} and {steps}; try steps={fitting}")
