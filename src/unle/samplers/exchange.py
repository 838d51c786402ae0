r"""The exchange algorithm: Markov chains for a posterior whose likelihood lacks a factor $1/Z(u)$.

The target is $\pi(u) \propto p(u)\,f(u) / Z(u)$, where $Z(u) = \int \rho(v)\,e^{s(u, v)}\,dv$ is unknown, but the
density $g(v \mid u) = \rho(v)\,e^{s(u, v)} / Z(u)$ can be drawn from. To go from u to a proposal u',

1. draw an auxiliary $v \sim g(\cdot \mid u')$;
2. accept with probability $\min\{1, \frac{p(u')\,f(u')\,q(u' \to u)}{p(u)\,f(u)\,q(u \to u')}
   \cdot e^{s(u, v) - s(u', v)}\}$.

The last factor is an unbiased estimate of $Z(u) / Z(u')$, and with exact draws the chain leaves $\pi$ invariant: the
constants of the auxiliary density cancel those of the target. v need not be of the same kind as the data. Any family
with the same Z(u) will do, and the smaller the variance of its ratio, the more is accepted.

**Bridging** lowers that variance further. v is led from u' to u through K densities between them,
$\rho\,e^{(1 - b) s(u', v) + b\,s(u, v)}$ with b = k / (K + 1), by a reversible move on each; the ratio becomes the
product of K + 1 small ones.

**Proposals** are the outer moves: where a chain over parameters goes. One returns the part of the log acceptance ratio
that it can compute, with Z left out.

* `Walk` and `Langevin` make one step. The covariance of the steps is that of a whitening fitted in the warm-up.
* `SurrogateWalks` makes many steps at once under the surrogate posterior $p f / \hat Z$, which an approximation of Z
  provides. Any reversible sequence of steps proposes u', and p f cancels: $\hat Z(u') / \hat Z(u)$ is all that is left.
  Steps under the surrogate are cheap and may cross between modes, and only their end is paid for with an auxiliary
  draw. With a perfect surrogate and perfect auxiliary draws of small variance, all ends are accepted.

References:
    Murray, Ghahramani and MacKay (2006), MCMC for doubly-intractable distributions.
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
from unle.samplers.inner import AbstractInner, Family, InnerDraw, TemperedInner
from unle.samplers.kernels import AbstractKernel, LogDensity, Mala
from unle.samplers.particles import Room, Whitening, choose_rows, fit_whitening, over_devices
from unle.samplers.step_size import SharedStepSize, StepSizeState
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


STEP = SharedStepSize(initial=0.5, floor=0.05, smallest=1e-6, largest=10.0)
BRIDGE_KERNEL: AbstractKernel = Mala()


class _StepSizes(NamedTuple):
    """States of the step-size controllers: of the proposals, of each inner rung, and of the bridge."""

    outer: StepSizeState
    inner: StepSizeState
    bridge: StepSizeState

    @classmethod
    def start(cls, inner: AbstractInner) -> "_StepSizes":
        """Return the initial states of the step sizes."""
        rungs = jax.vmap(lambda _: STEP.init(1))(jnp.arange(inner.rungs))
        return cls(STEP.init(1), rungs, STEP.init(1))


class InnerHealth(NamedTuple):
    """How the auxiliary draws did, averaged over a run, the warm-up left out."""

    acceptance: Float[Array, ""]  # of their moves
    # mean change of the tilt s between the first arrival at the full tilt and the end; zero if the moves have nothing
    # left to forget
    drift: Float[Array, ""]
    drift_error: Float[Array, ""]  # its standard error. A drift of several errors asks for more rungs or moves.
    spread: Float[Array, ""]  # standard deviation of that change: the size of a harmless difference
    trusted: Float[Array, ""]  # share of draws that the inner sampler reports as reliable


class ExchangeRun(NamedTuple):
    """Where the chains are after a run."""

    draws: Float[Array, "chain draw dim"]  # the kept draws
    positions: Float[Array, "chain dim"]  # the last position of each chain
    # acceptance probability of the exchange after the warm-up, averaged over chains and steps
    acceptance: Float[Array, ""]
    moved: Float[Array, " chain"]  # for each chain, the share of proposals it accepted; 0 is a stuck chain
    inner: InnerHealth  # how the auxiliary draws did


def exchange(
    key: PRNGKeyArray,  # randomness of the run
    positions: Float[Array, "chain dim"],  # where each chain starts
    target: ExchangeTarget,  # the posterior
    *,
    keep: int | Room,  # draws to keep of each chain
    thin: int = 1,  # exchange steps between kept draws
    # steps made beforehand (rounded up to a multiple of `thin`). In them, and only in them, step sizes and the
    # covariance of proposals are adapted: afterwards the run is a Markov chain.
    warm_up: int = 0,
    proposal: AbstractProposal | None = None,  # how chains propose; Gaussian walks by default
    inner: AbstractInner | None = None,  # how auxiliary variables are drawn; by tempering by default
    bridges: int = 0,  # densities between u' and u, K
    # points whose differences `SurrogateWalks` use; `positions` by default
    archive: Float[Array, "archive dim"] | None = None,
) -> ExchangeRun:
    """Warm up, then draw. Meant to be called inside `jax.jit`.

    Example:
        >>> import jax, jax.numpy as jnp, jax.random as jr
        >>> from unle.samplers import ExchangeTarget, Family, exchange
        >>> log_normal = lambda z: -0.5 * jnp.sum(z**2 + jnp.log(2 * jnp.pi))
        >>> family = Family(lambda u, v: (u * v)[0], log_normal, lambda key, n: jr.normal(key, (n, 1)))
        >>> def posterior(key, w):  # f(w) = N(w; 0, 1) exp(u w): Z(u) = exp(u^2 / 2), w is N(u, 1)
        ...     target = ExchangeTarget(log_normal, lambda u: log_normal(w) + (u * w)[0], family)
        ...     return exchange(key, jnp.zeros((50, 1)), target, keep=100, warm_up=50)
        >>> run = jax.jit(posterior)(jr.key(0), jnp.array([2.0]))
        >>> bool(abs(run.draws.mean() - 1.0) < 0.1)
        True
    """
    keep, wanted = Room.of(keep)
    _check(positions, keep, thin, warm_up, target.rows, bridges)
    inner = TemperedInner() if inner is None else inner
    archive = positions if archive is None else archive
    moves = _Moves(target, Walk() if proposal is None else proposal, inner, bridges, archive)
    n = positions.shape[0]
    warm_blocks = -(-warm_up // thin)
    made = keep if wanted is None else jnp.minimum(wanted, keep)

    def one_block(carry, block):
        if wanted is None:
            return moved_on(carry, block)
        is_wanted = block[2] < warm_blocks + made
        return jax.lax.cond(is_wanted, moved_on, lambda carry, _: (carry, carry[0]), carry, block)

    def moved_on(carry, block):
        positions, whitening, step_sizes, totals = carry
        key, is_warm, _ = block
        whitening = jax.tree.map(lambda new, old: jnp.where(is_warm, new, old), fit_whitening(positions), whitening)
        start = (moves.proposal.init(positions, target, whitening), step_sizes)
        (state, step_sizes), record = jax.lax.scan(
            lambda carry, key: moves.step(carry, key, whitening, is_warm), start, jr.split(key, thin)
        )
        totals = jax.tree.map(lambda total, new: total + jnp.where(is_warm, 0.0, jnp.mean(new, axis=0)), totals, record)
        return (state.particles.positions, whitening, step_sizes, totals), state.particles.positions

    numbers = jnp.arange(warm_blocks + keep)
    blocks = (jr.split(key, warm_blocks + keep), numbers < warm_blocks, numbers)
    zero_totals = (jnp.zeros(n), jnp.zeros(n), jnp.zeros(2), jnp.zeros(()), jnp.zeros(()))
    start = (over_devices(positions), fit_whitening(positions), _StepSizes.start(inner), zero_totals)
    (positions, _, _, totals), record = jax.lax.scan(one_block, start, blocks)
    probability, moved, moments, acceptance, trusted = (total / made for total in totals)
    drift, spread = moments[0], jnp.sqrt(jnp.maximum(moments[1] - moments[0] ** 2, 0.0))
    health = InnerHealth(acceptance, drift, spread / jnp.sqrt(made * thin * n * target.rows), spread, trusted)
    # The scan stacks positions as (block, chain, dim).
    draws = jnp.swapaxes(record[warm_blocks:], 0, 1)
    return ExchangeRun(draws, positions, jnp.mean(probability), moved, health)


class _Moves(NamedTuple):
    """One exchange step of all chains."""

    target: ExchangeTarget
    proposal: AbstractProposal
    inner: AbstractInner
    bridges: int
    archive: Float[Array, "archive dim"]

    def step(self, carry, key, whitening: Whitening, is_warm):
        """Propose, draw auxiliary variables, accept or reject; adapt step sizes if warm."""
        state, step_sizes = carry
        n = state.log_z.shape[0]
        key_propose, key_auxiliary, key_accept = jr.split(key, 3)
        size = STEP.value(step_sizes.outer)
        proposed = self.proposal.propose(key_propose, state, self.target, whitening, self.archive, size)
        sizes = STEP.value(step_sizes.inner), STEP.value(step_sizes.bridge)
        per_row = jax.vmap(lambda key, old, new: self.auxiliary(key, old, new, *sizes), in_axes=(0, None, None))
        keys = jr.split(key_auxiliary, n * self.target.rows).reshape(n, self.target.rows)
        log_z_ratio, drawn, bridge_acceptance = jax.vmap(per_row)(
            keys, state.particles.positions, proposed.state.particles.positions
        )
        log_ratio = proposed.log_ratio + jnp.sum(log_z_ratio, axis=1)
        probability = _probability(log_ratio, state, proposed.state)
        accepted = jr.uniform(key_accept, (n,)) < probability
        state = choose_rows(accepted, proposed.state, state)
        adapted = _StepSizes(
            STEP.update(step_sizes.outer, probability, self.proposal.target_acceptance),
            _update_rungs(step_sizes.inner, drawn.acceptance, self.inner.target_acceptance),
            STEP.update(step_sizes.bridge, bridge_acceptance.ravel(), BRIDGE_KERNEL.target_acceptance),
        )
        step_sizes = jax.tree.map(lambda new, old: jnp.where(is_warm, new, old), adapted, step_sizes)
        record = (
            probability,
            1.0 * accepted,
            _moments(drawn.tilt - drawn.early_tilt),
            jnp.mean(drawn.acceptance),
            jnp.mean(1.0 * drawn.trusted),
        )
        return (state, step_sizes), record

    def auxiliary(self, key, old, new, inner_steps, bridge_step) -> tuple[Array, InnerDraw, Array]:
        """Return the log of an estimate of Z(old) / Z(new) of one row."""
        key_inner, key_bridge = jr.split(key)
        c_old, c_new = self.target.condition(old), self.target.condition(new)
        drawn = self.inner.draw(key_inner, c_new, self.target.family, inner_steps)
        log_ratio, acceptance = _bridged(key_bridge, drawn, c_new, c_old, self.target.family, bridge_step, self.bridges)
        return log_ratio, drawn, acceptance


def _bridged(key, drawn: InnerDraw, c_from, c_to, family: Family, step_size, bridges: int):
    """Lead v from g(. | c_from) towards g(. | c_to); return log Z(c_to) / Z(c_from), and the moves' acceptance."""

    def difference(v):
        return family.log_tilt(c_to, v) - family.log_tilt(c_from, v)

    if not bridges:
        return family.log_tilt(c_to, drawn.v) - drawn.tilt, jnp.ones(())

    def one_bridge(carry, bridge):
        v, log_ratio = carry
        fraction, key = bridge

        def density(v):
            tilt = (1 - fraction) * family.log_tilt(c_from, v) + fraction * family.log_tilt(c_to, v)
            return family.log_reference(v) + tilt

        log_ratio = log_ratio + difference(v)
        state, info = BRIDGE_KERNEL.step(key, BRIDGE_KERNEL.init(v, density), density, step_size)
        return (state.position, log_ratio), info.acceptance

    fractions = jnp.arange(1, bridges + 1) / (bridges + 1)
    (v, log_ratio), acceptance = jax.lax.scan(one_bridge, (drawn.v, jnp.zeros(())), (fractions, jr.split(key, bridges)))
    return (log_ratio + difference(v)) / (bridges + 1), jnp.mean(acceptance)


def _probability(log_ratio, old: OuterState, new: OuterState):
    """Metropolis-Hastings; a chain outside the support accepts any proposal inside, and NaN is a rejection."""
    lost = ~jnp.isfinite(old.log_target)
    probability = jnp.exp(jnp.minimum(jnp.where(jnp.isnan(log_ratio), -jnp.inf, log_ratio), 0.0))
    return jnp.where(jnp.isfinite(new.log_target), jnp.where(lost, 1.0, probability), 0.0)


def _moments(values):
    """Return mean and mean square of the finite values."""
    finite = jnp.isfinite(values)
    values = jnp.where(finite, values, 0.0)
    count = jnp.maximum(jnp.sum(finite), 1)
    return jnp.stack([jnp.sum(values), jnp.sum(values**2)]) / count


def _update_rungs(states: StepSizeState, acceptance: Float[Array, "chain rows rung"], target: float) -> StepSizeState:
    by_rung = jnp.moveaxis(acceptance, -1, 0).reshape(acceptance.shape[-1], -1)
    return jax.vmap(lambda state, one: STEP.update(state, one, target))(states, by_rung)


def _check(positions, keep: int, thin: int, warm_up: int, rows: int, bridges: int) -> None:
    if positions.ndim != 2 or positions.shape[0] < 2:
        raise InputError(f"expected positions of shape (chain, dim), two chains or more; got {positions.shape}.")
    if min(keep, thin, rows) < 1 or min(warm_up, bridges) < 0:
        raise InputError(
            "expected keep, thin and rows >= 1, warm_up and bridges >= 0; "
            f"got {keep}, {thin}, {rows}, {warm_up} and {bridges}; try keep=100, warm_up=100."
        )
