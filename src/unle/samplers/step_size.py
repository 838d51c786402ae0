r"""Step-size controllers: find the step size at which a kernel accepts as often as it should, and stay there.

Both controllers move the logarithm of the step size along the error of the acceptance probability,

$$\log\epsilon \leftarrow \log\epsilon + \gamma\,(\alpha - \alpha^*),$$

with $\alpha$ the acceptance probability of the last step and $\alpha^*$ the kernel's target. Two choices make
this usable inside training, where the target density itself drifts:

* the gain $\gamma$ shrinks only when the error *changes sign* (Kesten 1958): a start that is orders of
  magnitude off is corrected at full speed, however long that takes;
* the gain never falls below a floor, so that the controller keeps following. Carry the state from one
  training iteration to the next; starting anew each time would throw the knowledge away.

`SharedStepSize` adapts one step size on the mean acceptance of all chains, `PerChainStepSize` one for each
chain. Prefer the shared one: its signal is an average over many chains, and a chain that sits in a bad place
cannot drive its own step size to a value that keeps it there.
"""

import abc
import math
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from unle.errors import InputError


class StepSizeState(NamedTuple):
    """Where a controller stands. Shapes are () for one shared step size and (chain,) for one per chain."""

    log_step: Float[Array, "*chain"]  # log epsilon
    crossings: Float[Array, "*chain"]  # how often the acceptance error has changed sign
    error: Float[Array, "*chain"]  # the last acceptance error


class AbstractStepSize(eqx.Module):
    """A step-size controller: `init`, then `value` and `update` in turn."""

    initial: float = eqx.field(default=0.1, static=True)  # epsilon at the start; may be wrong by orders of magnitude
    floor: float = eqx.field(default=0.05, static=True)  # the smallest gain
    smallest: float = eqx.field(default=1e-8, static=True)  # epsilon never falls below this
    largest: float = eqx.field(default=1e2, static=True)  # epsilon never rises above this

    def __check_init__(self):
        if not 0 < self.smallest <= self.initial <= self.largest:
            raise InputError(
                f"expected 0 < smallest <= initial <= largest; got {self.smallest}, {self.initial}, {self.largest}; "
                "try initial=0.1"
            )
        if not 0 <= self.floor <= 1:
            raise InputError(f"expected 0 <= floor <= 1; got {self.floor}; try floor=0.05")

    @abc.abstractmethod
    def init(self, n_chains: int) -> StepSizeState:
        """Start at the initial step size."""

    def value(self, state: StepSizeState) -> Float[Array, "*chain"]:
        """Return epsilon: () if shared by all chains, (chain,) otherwise."""
        return jnp.exp(state.log_step)

    @abc.abstractmethod
    def update(self, state: StepSizeState, acceptance: Float[Array, " chain"], target: float) -> StepSizeState:
        """Learn from one step of all chains: their acceptance probabilities, and the mean to aim at."""

    def _start(self, shape: tuple[int, ...]) -> StepSizeState:
        zeros = jnp.zeros(shape)  # adding to it, rather than `jnp.full`, gives the same type as `update` does
        return StepSizeState(zeros + math.log(self.initial), zeros, zeros)

    def _moved(self, state: StepSizeState, error: Float[Array, "*chain"]) -> StepSizeState:
        crossings = state.crossings + (error * state.error < 0)
        # k^-0.6: between 1/k (too slow to forget the start) and 1/sqrt(k) (keeps too much noise).
        gain = jnp.maximum((1.0 + crossings) ** -0.6, self.floor)
        low, high = math.log(self.smallest), math.log(self.largest)
        return StepSizeState(jnp.clip(state.log_step + gain * error, low, high), crossings, error)


class SharedStepSize(AbstractStepSize):
    """One step size for all chains, adapted on their mean acceptance.

    With a floor of 0.05 it follows a drifting target within about fifty steps, and a single chain among hundreds has no
    visible influence on it.
    """

    def init(self, n_chains):
        """Start at `initial`, whatever the number of chains."""
        del n_chains
        return self._start(())

    def update(self, state, acceptance, target):
        return self._moved(state, jnp.mean(acceptance) - target)


class PerChainStepSize(AbstractStepSize):
    """A step size for each chain, adapted on its own acceptance.

    For chains with different targets (one observation or one parameter each). A chain that adapts on itself
    for ever is no longer exactly invariant; hence the small floor. Freeze it (`adapt=False`) for the draws
    that are kept.
    """

    floor: float = eqx.field(default=0.01, static=True)

    def init(self, n_chains):
        return self._start((n_chains,))

    def update(self, state, acceptance, target):
        return self._moved(state, acceptance - target)
