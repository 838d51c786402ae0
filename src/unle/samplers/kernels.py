"""Markov kernels: one step of one chain that leaves a density invariant.

A kernel wraps one of BlackJAX. `init` evaluates the density at a position, `step` proposes, accepts or rejects. The
log-density and the step size arrive with every call, so that the same kernel serves a density whose parameters are
being trained, whose temperature changes or whose observation changes, without recompiling.

All kernels use the identity metric. For a target with unequal scales, change variables around the whole sampler
(`unle.samplers.Whitening`).

Two promises hold for every kernel here:

* a proposal whose log-density is NaN or infinite (either sign) is rejected;
* a chain that starts where the log-density is not finite is not stuck: any finite proposal is accepted.

A state remembers the log-density (and its gradient) of the density it was made with. After the density has
changed, in training say, keep the *positions* and call `init` again.
"""

import abc
import functools
import importlib
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, TypeAlias

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from unle.errors import InputError

LogDensity: TypeAlias = Callable[[Float[Array, " dim"]], Float[Array, ""]]
KernelState: TypeAlias = Any  # a named tuple of blackjax: always `.position` and `.logdensity`


class KernelInfo(NamedTuple):
    """What happened in one step of one chain."""

    # the acceptance *probability* of the proposal, in [0, 1]; its mean over chains steers the step size with far less
    # noise than the accepted/rejected outcome would
    acceptance: Float[Array, ""]
    moved: Bool[Array, ""]  # whether the chain is now somewhere else


class AbstractKernel(eqx.Module):
    """One step of one chain; `jax.vmap` makes many chains."""

    # the mean acceptance probability at which this kernel mixes best; what a step-size controller aims at
    target_acceptance: eqx.AbstractVar[float]

    @abc.abstractmethod
    def init(self, position: Float[Array, " dim"], log_density: LogDensity) -> KernelState:
        """Evaluate the log-density at a position; the state has the fields `position` and `logdensity`."""

    @abc.abstractmethod
    def step(
        self,
        key: PRNGKeyArray,
        state: KernelState,
        log_density: LogDensity,
        step_size: Float[Array, ""] | float,
    ) -> tuple[KernelState, KernelInfo]:
        """Move the chain once, leaving p invariant.

        The state was made with this same density, by `init` or `step`; what the step size epsilon > 0 scales is said by
        each kernel.
        """


class _GradientKernel(AbstractKernel):
    """A kernel of BlackJAX that follows the gradient; a chain outside the support starts as a random walk."""

    algorithm: ClassVar[str]  # its name there

    def init(self, position, log_density):
        """Evaluate the density and its gradient; a gradient that is not finite counts as zero.

        Only a starting point can need that: a *proposal* with such a gradient makes the acceptance ratio NaN, which is
        a rejection.
        """
        state = _blackjax(self.algorithm).init(position, _finite_or_rejected(log_density))
        gradient = state.logdensity_grad
        return state._replace(logdensity_grad=jnp.where(jnp.isfinite(gradient), gradient, 0.0))


class Mala(_GradientKernel):
    r"""Metropolis-adjusted Langevin: $y = x + \epsilon \nabla \log p(x) + \sqrt{2\epsilon}\,\xi$.

    The default for particles in training: one gradient per step, and it moves with the flow of the density
    in up to some tens of dimensions. The step size is a squared length: a target of width s wants about
    s^2.

    References:
        Roberts and Tweedie (1996), Exponential convergence of Langevin distributions.
    """

    algorithm: ClassVar[str] = "mala"
    target_acceptance: float = eqx.field(default=0.574, static=True)  # Roberts & Rosenthal (1998)

    def step(self, key, state, log_density, step_size):
        state, info = _step("mala")(key, state, _finite_or_rejected(log_density), step_size)
        return state, KernelInfo(info.acceptance_rate, info.is_accepted)


class Hmc(_GradientKernel):
    r"""Hamiltonian Monte Carlo: `leapfrogs` steps of length $\epsilon$ along a random momentum.

    Costs `leapfrogs` gradients and moves about `leapfrogs` x epsilon. Prefer it to MALA in tens of
    dimensions, or where gradients are cheap against everything else.

    References:
        Neal (2011), MCMC using Hamiltonian dynamics.
    """

    algorithm: ClassVar[str] = "hmc"
    leapfrogs: int = eqx.field(default=5, static=True)
    target_acceptance: float = eqx.field(default=0.8, static=True)  # .65 is optimal, .8 forgives tails

    def __check_init__(self):
        _check_positive_count("leapfrogs", self.leapfrogs)

    def step(self, key, state, log_density, step_size):
        metric, density = jnp.ones_like(state.position), _finite_or_rejected(log_density)
        state, info = _step("hmc")(key, state, density, step_size, metric, self.leapfrogs)
        return state, KernelInfo(info.acceptance_rate, info.is_accepted)


class RandomWalk(AbstractKernel):
    r"""Gaussian random walk: $y = x + \epsilon\,\xi$. No gradient; one density per step."""

    # Optimal values run from .44 in one dimension to .234 in many; the loss is flat around the optimum.
    target_acceptance: float = eqx.field(default=0.3, static=True)

    def init(self, position, log_density):
        return _blackjax("random_walk").init(position, _finite_or_rejected(log_density))

    def step(self, key, state, log_density, step_size):
        steps = _blackjax("random_walk").normal(step_size * jnp.ones_like(state.position))
        state, info = _step("random_walk")(key, state, _finite_or_rejected(log_density), steps)
        return state, KernelInfo(info.acceptance_rate, info.is_accepted)


class Nuts(_GradientKernel):
    """The no-U-turn sampler: a trajectory that stops by itself before it turns back.

    For a few tens of chains on a posterior. Under `vmap` all chains wait for the longest trajectory, so
    that a thousand chains pay several times what they use: take `Mala` or `Hmc` there.

    References:
        Hoffman and Gelman (2014), The no-U-turn sampler.
    """

    algorithm: ClassVar[str] = "nuts"
    max_doublings: int = eqx.field(default=8, static=True)  # at most 2^8 gradients in one step
    target_acceptance: float = eqx.field(default=0.8, static=True)

    def __check_init__(self):
        _check_positive_count("max_doublings", self.max_doublings)

    def step(self, key, state, log_density, step_size):
        metric, density = jnp.ones_like(state.position), _finite_or_rejected(log_density)
        new, info = _step("nuts")(key, state, density, step_size, metric, self.max_doublings)
        moved = jnp.any(new.position != state.position)
        # An average over the trajectory: 0/0 if the first leapfrog diverged, and 1 only up to rounding.
        acceptance = jnp.where(jnp.isnan(info.acceptance_rate), 0.0, jnp.clip(info.acceptance_rate, 0.0, 1.0))
        return new, KernelInfo(acceptance, moved)


def _blackjax(name: str) -> Any:
    """Return a module of kernels, imported when it is first used: tempered SMC, the default, needs none."""
    return importlib.import_module(f"blackjax.mcmc.{name}")


@functools.cache
def _step(name: str) -> Callable[..., Any]:
    """Return the step of a kernel; typed loosely, as blackjax annotates traced scalars as Python floats and bools."""
    module = _blackjax(name)
    return module.build_additive_step() if name == "random_walk" else module.build_kernel()


def _finite_or_rejected(log_density: LogDensity) -> LogDensity:
    """Turn NaN, +inf and -inf into -inf: the one value that every acceptance step rejects."""

    def guarded(position):
        value = log_density(position)
        return jnp.where(jnp.isfinite(value), value, -jnp.inf)

    return guarded


def _check_positive_count(name: str, value: int) -> None:
    if value < 1:
        raise InputError(f"expected `{name}` >= 1; got {value}; try {name}=5")
