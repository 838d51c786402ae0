r"""Draws of a density that is known up to a constant, made afresh: the auxiliary variables of the exchange algorithm.

The family of densities is $g(v \mid c) \propto \rho(v)\,e^{s(c, v)}$: a reference $\rho$ that can be drawn from, tilted
by s, which depends on a condition c.

* `TemperedInner` raises the tilt along a ladder, $\rho\,e^{\beta s}$. On every rung it first chooses between where it
  is and fresh draws of the reference, in proportion to their weights, which crosses between modes; then it makes local
  moves. Approximate, better with more rungs and moves.
* `RejectionInner` accepts draws of the reference with probability $e^{s - c}$: exact where s <= c, at $e^c / Z$ trials.
* `ChainInner` is the plain Markov chain of the paper, from the observed data. It favours the mode of g that these are
  in; the other two do not start at data.

References:
    Neal (2001), Annealed importance sampling.
    Andrieu, Lee and Vihola (2018), Uniform ergodicity of the iterated conditional SMC (the choice among fresh draws).
"""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from unle.errors import InputError
from unle.samplers.kernels import AbstractKernel, LogDensity, Mala
from unle.samplers.step_size import PerChainStepSize

# Rungs at (k / K)^2: close together where the tilt begins, since a strong tilt changes most there.
LADDER_POWER = 2.0


class Family(NamedTuple):
    """Densities g(v | c) = rho(v) exp(s(c, v)) / Z(c), one for each condition c."""

    log_tilt: Callable[[Any, Float[Array, " data"]], Float[Array, ""]]  # s of a condition and one v
    log_reference: LogDensity  # log rho of one v, normalised
    # independent draws of rho, from a key and their number
    draws: Callable[[PRNGKeyArray, int], Float[Array, "n data"]]

    def density(self, condition: Any, beta: Float[Array, ""] | float = 1.0) -> LogDensity:
        """Return v -> log rho(v) + beta s(c, v)."""
        return lambda v: self.log_reference(v) + beta * self.log_tilt(condition, v)


class InnerDraw(NamedTuple):
    """One auxiliary draw, and what tells whether it can be trusted."""

    v: Float[Array, " data"]  # the draw
    tilt: Float[Array, ""]  # s at the draw
    # s when the full tilt was first reached. Over many draws its mean should equal that of `tilt`; a drift says that
    # the moves had not yet forgotten the ladder.
    early_tilt: Float[Array, ""]
    # mean acceptance probability of the moves on each rung; of the trials, for rejection
    acceptance: Float[Array, " rung"]
    trusted: Bool[Array, ""]  # False where the sampler knows that it failed


class AbstractInner(eqx.Module):
    """How one auxiliary variable is drawn."""

    target_acceptance: eqx.AbstractVar[float]  # of the moves, at which step sizes aim

    @property
    @abc.abstractmethod
    def rungs(self) -> int:
        """Number of step sizes used, one per rung."""

    @abc.abstractmethod
    def draw(self, key: PRNGKeyArray, condition: Any, family: Family, step_sizes: Float[Array, " rung"]) -> InnerDraw:
        """Draw one v of g(. | c); step sizes of the rungs must not depend on this draw."""


class TemperedInner(AbstractInner):
    """A chain from the reference to the tilted density, up a fixed ladder of temperatures.

    Attributes:
        temperatures: rungs up to the full tilt.
        settle: further rungs at the full tilt.
        candidates: fresh draws of the reference offered on each rung; 0 for local moves only.
        moves: kernel steps on each rung.
        kernel: MALA by default.
        target_acceptance: MALA's.
    """

    temperatures: int = eqx.field(static=True, default=6)
    settle: int = eqx.field(static=True, default=3)
    candidates: int = eqx.field(static=True, default=8)
    moves: int = eqx.field(static=True, default=2)
    kernel: AbstractKernel = Mala()
    target_acceptance: float = eqx.field(static=True, default=0.574)

    def __check_init__(self):
        if self.temperatures < 1 or self.settle < 1 or self.candidates < 0 or self.moves < 1:
            raise InputError(
                "expected temperatures >= 1, settle >= 1, candidates >= 0 and moves >= 1; got "
                f"{self.temperatures}, {self.settle}, {self.candidates} and {self.moves}; try TemperedInner()."
            )

    @property
    def rungs(self):
        return self.temperatures + self.settle

    def draw(self, key, condition, family, step_sizes):
        betas = (jnp.arange(1, self.temperatures + 1) / self.temperatures) ** LADDER_POWER
        betas = jnp.concatenate([betas, jnp.ones(self.settle)])
        key_start, key_rungs = jr.split(key)

        def one_rung(v, rung):
            beta, step_size, key = rung
            key_choose, key_move = jr.split(key)
            tilt = family.log_tilt(condition, v)
            if self.candidates:
                v = self._choose(key_choose, v, tilt, beta, condition, family)
            keys = jr.split(key_move, self.moves)
            v, acceptance = _moved(self.kernel, keys, v, family.density(condition, beta), step_size)
            return v, (tilt, jnp.mean(acceptance))

        start = family.draws(key_start, 1)[0]
        rungs = (betas, step_sizes, jr.split(key_rungs, self.rungs))
        v, (tilts, acceptance) = jax.lax.scan(one_rung, start, rungs)
        tilt = family.log_tilt(condition, v)
        # tilts[k] is that before rung k: entry `temperatures` is the first after the ladder's top was reached
        return InnerDraw(v, tilt, tilts[self.temperatures], acceptance, jnp.isfinite(tilt))

    def _choose(self, key, v, tilt, beta, condition, family: Family):
        """Choose between v and fresh draws, each with its weight exp(beta s): leaves the rung's density invariant."""
        key_draw, key_choose = jr.split(key)
        fresh = family.draws(key_draw, self.candidates)
        tilts = jnp.append(jax.vmap(lambda v: family.log_tilt(condition, v))(fresh), tilt)
        weights = jnp.where(jnp.isfinite(tilts), beta * tilts, -jnp.inf)
        index = jnp.argmax(weights + jr.gumbel(key_choose, weights.shape))
        return jnp.concatenate([fresh, v[None]])[index]


class RejectionInner(AbstractInner):
    """Exact draws for a tilt that is bounded above, such as that of a bounded energy over a fitted base.

    Attributes:
        bound: c >= s(c, v) everywhere. The cost grows as e^c: use it up to 5 nats or so.
        batch: trials made at once.
        max_batches: after which a draw is given up, and reported as not trusted.
        target_acceptance: unused; there are no moves.
    """

    bound: float
    batch: int = eqx.field(static=True, default=16)
    max_batches: int = eqx.field(static=True, default=10_000)
    target_acceptance: float = eqx.field(static=True, default=1.0)

    def __check_init__(self):
        if self.batch < 1 or self.max_batches < 1:
            raise InputError(
                f"expected batch >= 1 and max_batches >= 1; got {self.batch} and {self.max_batches}; try the defaults."
            )

    @property
    def rungs(self):
        return 1

    def draw(self, key, condition, family, step_sizes):
        dim = jax.eval_shape(lambda: family.draws(key, 1)).shape[1]

        def one_batch(carry):
            number, _, _, _, below = carry
            key_draw, key_accept = jr.split(jr.fold_in(key, number))
            v = family.draws(key_draw, self.batch)
            tilts = jax.vmap(lambda v: family.log_tilt(condition, v))(v)
            accepted = jnp.log(jr.uniform(key_accept, (self.batch,))) < tilts - self.bound
            first = jnp.argmax(accepted)
            return number + 1, v[first], tilts[first], jnp.any(accepted), below & jnp.all(tilts <= self.bound)

        def unfinished(carry):
            number, _, _, done, _ = carry
            return ~done & (number < self.max_batches)

        no, yes = jnp.zeros((), bool), jnp.ones((), bool)
        start = (jnp.zeros((), int), jnp.zeros(dim), jnp.zeros(()), no, yes)
        number, v, tilt, done, below = jax.lax.while_loop(unfinished, one_batch, start)
        return InnerDraw(v, tilt, tilt, 1.0 / (number * self.batch)[None], done & below)


class ChainInner(AbstractInner):
    """A plain Markov chain from a given point, as the paper draws.

    It tunes its step size in the first half of its steps and freezes it in the second: densities of other conditions
    may be wider or narrower by orders of magnitude.  It stays in the mode of g that it starts in.
    """

    points: Float[Array, "start data"]  # one of them, taken at random, is where the chain starts
    moves: int = eqx.field(static=True, default=100)  # kernel steps
    kernel: AbstractKernel = Mala()  # MALA by default
    target_acceptance: float = eqx.field(static=True, default=0.574)  # at which step sizes aim

    def __check_init__(self):
        if self.moves < 2:
            raise InputError(f"expected moves >= 2, of which the first half tunes; got {self.moves}; try moves=100.")

    @property
    def rungs(self):
        return 1

    def draw(self, key, condition, family, step_sizes):
        key_start, key_moves = jr.split(key)
        start = self.points[jr.randint(key_start, (), 0, self.points.shape[0])]
        keys, half, density = jr.split(key_moves, self.moves), self.moves // 2, family.density(condition)
        middle, step_size, tuning = self._tuned(keys[:half], start, density, step_sizes[0])
        end, _ = _moved(self.kernel, keys[half:], middle, density, step_size)
        early, tilt = family.log_tilt(condition, middle), family.log_tilt(condition, end)
        return InnerDraw(end, tilt, early, jnp.mean(tuning)[None], jnp.isfinite(tilt))

    def _tuned(self, keys, v, density: LogDensity, step_size) -> tuple[Array, Array, Array]:
        """Return v after one kernel step per key, the step size tuned meanwhile, and the acceptance of each step."""
        own = PerChainStepSize()

        def move(carry, key):
            state, sizes = carry
            state, info = self.kernel.step(key, state, density, own.value(sizes)[0])
            return (state, own.update(sizes, info.acceptance[None], self.target_acceptance)), info.acceptance

        sizes = own.init(1)._replace(log_step=jnp.log(step_size)[None])
        (state, sizes), acceptance = jax.lax.scan(move, (self.kernel.init(v, density), sizes), keys)
        return state.position, own.value(sizes)[0], acceptance


def _moved(kernel: AbstractKernel, keys, v, density: LogDensity, step_size) -> tuple[Array, Array]:
    """Return v after one kernel step per key, and the acceptance probability of each."""

    def move(state, key):
        state, info = kernel.step(key, state, density, step_size)
        return state, info.acceptance

    state, acceptance = jax.lax.scan(move, kernel.init(v, density), keys)
    return state.position, acceptance
