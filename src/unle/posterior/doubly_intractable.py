r"""Ways to draw from a posterior whose likelihood lacks a normaliser that depends on theta.

A sampler of this kind sees more than one of the other: besides the prior and the unnormalised likelihood f(x_o | u),
the family of densities g(v | u) that share the unknown Z(u) with it.
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from unle.errors import InputError
from unle.posterior.posterior_samplers import DRAWS, Sampled, check_chains, doubled
from unle.samplers import (
    AbstractInner,
    AbstractProposal,
    ExchangeTarget,
    LogDensity,
    Room,
    SurrogateWalks,
    Sweep,
    TemperedInner,
    Walk,
    exchange,
    log_mean_exp,
    tempered_smc,
)


class AbstractDoublyIntractableSampler(eqx.Module):
    """How draws of a doubly intractable posterior are made."""

    # raw theta from which chains start, or None for prior draws
    starts: eqx.AbstractVar[Float[Array, "chain dim"] | None]

    @abc.abstractmethod
    def __call__(
        self,
        key: PRNGKeyArray,  # randomness of the sampler
        # u of `self.starts`, or of `self.prior_draws_needed(n)` independent draws of the prior
        positions: Float[Array, "n dim"],
        target: ExchangeTarget,  # what is known of the posterior
        n: int,  # number of draws, or that there is room for
        wanted: Int[Array, ""] | None = None,  # number of draws asked for, if fewer; see `AbstractPosteriorSampler`
    ) -> Sampled:
        """Make at least n draws, or as many of them as are wanted.  Called inside `jax.jit`."""

    @abc.abstractmethod
    def prior_draws_needed(self, n: int) -> int:
        """Return how many prior draws a call for n draws starts from."""

    def room(self, n: int) -> int:
        """Return the number of draws of the program that makes n of them."""
        return doubled(DRAWS, n)


class Exchange(AbstractDoublyIntractableSampler):
    r"""Exchange chains that start from an approximate posterior and make it right.

    1. log Z^(u): the learned one if the likelihood has it, else importance sampling from the reference,
       log mean_m exp(s(u, v_m)) with the same v_m for every u, a smooth function.
    2. Tempered SMC from the prior to p f / Z^ finds all modes and their weights, as far as Z^ is right.
    3. Chains from its particles propose by walks under p f / Z^ and are accepted by the exchange algorithm, which knows
       no Z^: its error is removed, and only that of the auxiliary draws remains.

    Args:
        chains: number of chains.
        warm_up: exchange steps before the first draw, in which the auxiliary sampler's step sizes are tuned.
        thin: exchange steps between kept draws.
        proposal: how chains propose: `SurrogateWalks()`, or single steps `Walk()` and `Langevin()`.
        inner: how auxiliary data are drawn: `TemperedInner()`, or `RejectionInner(bound)` for a bounded energy.
        bridges: densities between old and new parameters through which auxiliary data are led; they cost
            one gradient each and raise the acceptance.
        importance: draws of the reference behind Z^, where none was learned.
        particles: of the tempered SMC.
        sweep: its moves; None takes those that suit the dimension.
        starts: theta to start chains from, shape (chains, d), in place of steps 1 and 2: draws of the previous
            round, say.  Their modes are the only ones that will be found, apart from jumps of `SurrogateWalks`.

    Example:
        >>> import unle
        >>> unle.Exchange(chains=50).chains
        50
    """

    chains: int = eqx.field(static=True, default=500)
    warm_up: int = eqx.field(static=True, default=40)
    thin: int = eqx.field(static=True, default=2)
    proposal: AbstractProposal = SurrogateWalks()
    inner: AbstractInner = TemperedInner()
    bridges: int = eqx.field(static=True, default=0)
    importance: int = eqx.field(static=True, default=64)
    particles: int = eqx.field(static=True, default=1000)
    sweep: Sweep | None = None
    starts: Float[Array, "chain dim"] | None = None

    def __check_init__(self):
        if self.chains < 2 or min(self.warm_up, self.thin, self.importance) < 1 or self.bridges < 0:
            raise InputError(
                "expected chains >= 2, warm_up, thin and importance >= 1 and bridges >= 0; got "
                f"{self.chains}, {self.warm_up}, {self.thin}, {self.importance} and {self.bridges}; try Exchange()."
            )
        if self.particles < self.chains:
            raise InputError(
                f"expected at least as many particles as chains; got {self.particles} and {self.chains}; "
                f"try particles={2 * self.chains}."
            )

    def prior_draws_needed(self, n):
        """Return the number of particles."""
        return self.particles

    def __call__(self, key, positions, target, n, wanted=None):
        """Temper, then exchange."""
        key_z, key_smc, key_exchange = jr.split(key, 3)
        target = target._replace(log_z=self._log_z(key_z, target))
        if self.starts is None:
            sweep = Sweep.for_dimension(positions.shape[1]) if self.sweep is None else self.sweep
            run = tempered_smc(key_smc, positions, target.log_prior, target.log_tilt, sweep=sweep)
            archive = run.particles.positions
            # Neighbours may descend from one ancestor: take chains from all over the particles.
            starts = archive[(jnp.arange(self.chains) * self.particles) // self.chains]
            evidence, path = run.log_evidence, jax.tree.map(lambda leaf: leaf[None], run.path)
        else:
            archive = starts = positions
            evidence, path = jnp.full((), jnp.nan), None
        last = exchange(
            key_exchange,
            starts,
            target,
            keep=_room(n, wanted, starts.shape[0]),
            thin=self.thin,
            warm_up=self.warm_up,
            proposal=self.proposal,
            inner=self.inner,
            bridges=self.bridges,
            archive=archive,
        )
        return Sampled(last.draws, last.acceptance, evidence[None], path, last.inner)

    def _log_z(self, key: PRNGKeyArray, target: ExchangeTarget) -> LogDensity:
        """Return an approximation of log Z(u) of one row."""
        if target.log_z is not None:
            return target.log_z
        family = target.family
        v = family.draws(key, self.importance)

        def by_importance(u):
            condition = target.condition(u)
            return log_mean_exp(jax.vmap(lambda v: family.log_tilt(condition, v))(v))

        return by_importance


class WalkingExchange(AbstractDoublyIntractableSampler):
    """The exchange algorithm alone, as the paper runs it: no approximation of Z(theta), no tempering.

    Gaussian walks from the prior, or from where the last round left them.  It is local: modes of the posterior that no
    chain starts in are not found.  `Exchange` finds them.
    """

    chains: int = eqx.field(static=True, default=500)  # number of chains, if they start at the prior
    # steps before the first draw, in which step sizes and the covariance of the walks are tuned
    warm_up: int = eqx.field(static=True, default=100)
    thin: int = eqx.field(static=True, default=5)  # steps between kept draws
    inner: AbstractInner = TemperedInner()  # how auxiliary data are drawn
    proposal: AbstractProposal = Walk()  # how chains propose
    # theta to start chains from, one each, in place of draws of the prior: those of the previous round
    starts: Float[Array, "chain dim"] | None = None

    def __check_init__(self):
        check_chains(self)

    def prior_draws_needed(self, n):
        """Return the number of chains."""
        return self.chains

    def __call__(self, key, positions, target, n, wanted=None):
        """Walk."""
        run = exchange(
            key,
            positions,
            target._replace(log_z=None),
            keep=_room(n, wanted, positions.shape[0]),
            thin=self.thin,
            warm_up=self.warm_up,
            proposal=self.proposal,
            inner=self.inner,
        )
        return Sampled(run.draws, run.acceptance, jnp.full((1,), jnp.nan), None, run.inner)


def _room(n: int, wanted: Int[Array, ""] | None, chains: int) -> Room:
    """Return how many draws of each chain there is room for, and how many are wanted."""
    return Room(-(-n // chains), None if wanted is None else -(-wanted // chains))
