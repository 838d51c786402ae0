r"""Ways to draw from a posterior whose likelihood is known up to a constant.

A sampler sees two functions of one point u in the prior's unconstrained coordinates, log p(u) and log q(x_o | u), and
returns draws with axes (chain, draw, dim).  `TemperedSmc`, the default, is global: it gets the weights of separate
modes right.  `Chains` runs any Markov kernel from prior draws and is local: fine for one mode, wrong for several.
`WarmChains` goes on from given points.
"""

import abc
import math
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from unle.errors import InputError
from unle.samplers import (
    AbstractKernel,
    AbstractStepSize,
    ChainRun,
    InnerHealth,
    LogDensity,
    Mala,
    Nuts,
    PerChainStepSize,
    Room,
    SharedStepSize,
    SurrogateSweep,
    Sweep,
    TemperedPath,
    Whitening,
    fit_whitening,
    over_devices,
    run_chains,
    tempered_smc,
)

DRAWS = 10_000  # by default


class Sampled(NamedTuple):
    """What a sampler returns."""

    draws: Float[Array, "chain draw dim"]  # in unconstrained coordinates
    acceptance: Float[Array, ""]  # mean acceptance probability of the last moves
    # log of the integral of prior times likelihood, one estimate per chain; NaN if unknown
    log_evidence: Float[Array, " chain"]
    path: TemperedPath | None  # the tempering path of each chain, or None
    inner: InnerHealth | None = None  # how the auxiliary draws of an exchange run did, or None


class AbstractPosteriorSampler(eqx.Module):
    """How draws are made."""

    @abc.abstractmethod
    def __call__(
        self,
        key: PRNGKeyArray,  # randomness of the sampler
        prior_draws: Float[Array, "n dim"],  # `self.prior_draws_needed(n)` independent draws of the prior
        log_prior: LogDensity,  # log-density of the prior at one u
        log_likelihood: LogDensity,  # log-likelihood of the observation at one u
        n: int,  # number of draws, or that there is room for
        # number of draws asked for, if fewer: they are the first of every chain, evenly over the chains, and the others
        # mean nothing.  One program serves all numbers up to n.
        wanted: Int[Array, ""] | None = None,
        part: Int[Array, ""] | None = None,  # makes only the chains of this part, if `parts` is more than 1
    ) -> Sampled:
        """Make at least n draws, or as many of them as are wanted.  Called inside `jax.jit`."""

    @property
    def parts(self) -> int:
        """How many parts of a call share nothing: processors work on them side by side."""
        return 1

    @abc.abstractmethod
    def prior_draws_needed(self, n: int) -> int:
        """Return how many prior draws a call for n draws starts from."""

    def room(self, n: int) -> int:
        """Return the number of draws of the program that makes n of them."""
        return doubled(DRAWS, n)


def doubled(smallest: int, n: int) -> int:
    """Return the first of smallest, 2 smallest, 4 smallest, ... that is n or more."""
    return smallest * 2 ** max(0, math.ceil(math.log2(n / smallest)))


class TemperedSmc(AbstractPosteriorSampler):
    """Sequential Monte Carlo from the prior to the posterior, on several independent islands.

    Each island is a whole run with its own particles; islands are what `chain` means in the draws, so R-hat compares
    runs that share nothing: it is high when they disagree on a mode's weight.

    Args:
        islands: independent runs.
        particles: particles over all islands together, at least (an eighth of the draws asked for, if more).
        sweep: moves at each temperature and between kept draws; None takes those that suit the dimension.
        ess_target: effective sample size, as a share, to which each temperature comes down.
        settle: sweeps at the posterior before the first draw is kept.

    Example:
        >>> import unle
        >>> sampler = unle.TemperedSmc(particles=20_000)
        >>> posterior = unle.AUNLE(prior, sampler=sampler).fit(simulations)  # doctest: +SKIP
    """

    islands: int = eqx.field(static=True, default=4)
    particles: int = eqx.field(static=True, default=2000)
    sweep: Sweep | None = None
    ess_target: float = eqx.field(static=True, default=0.5)
    settle: int = eqx.field(static=True, default=1)

    def __check_init__(self):
        if self.islands < 1 or self.particles < 100 * self.islands:
            raise InputError(
                f"expected at least one island of 100 particles; got {self.particles} particles on "
                f"{self.islands} islands; try particles={max(2000, 500 * self.islands)}."
            )

    def prior_draws_needed(self, n):
        """Return the number of particles."""
        return self.islands * self._per_island(n)

    def room(self, n):
        """Return the number of draws of the program that makes n of them; up to eight of each particle."""
        return doubled(8 * self.particles, n)

    @property
    def parts(self):
        """The islands."""
        return self.islands

    def _per_island(self, n: int) -> int:
        return -(-max(self.particles, n // 8) // self.islands)

    def __call__(self, key, prior_draws, log_prior, log_likelihood, n, wanted=None, part=None, log_cheap=None):
        """Run the islands side by side, or one of them.

        With `log_cheap`, an approximation of the log-likelihood, particles go from the prior to its posterior, and from
        there to the posterior: most evaluations are cheap, and the draws are those of the log-likelihood.  Where
        it is far from the log-likelihood and half as wide, the evidence was found a fifth too small, the draws right.
        """
        per_island = self._per_island(n)
        sweep = Sweep.for_dimension(prior_draws.shape[1]) if self.sweep is None else self.sweep
        particles = self.islands * per_island
        keep = -(-n // particles)
        wanted = jnp.asarray(n if wanted is None else wanted)
        kept = -(-wanted // particles)  # of each particle

        temper = partial(tempered_smc, ess_target=self.ess_target)
        end = {"settle": self.settle, "keep": Room(keep, kept)}

        def one_island(key, start):
            if log_cheap is None:
                return temper(key, start, log_prior, log_likelihood, sweep=sweep, **end)
            return through(log_cheap, key, start)

        def through(log_cheap, key, start):
            key_cheap, key = jr.split(key)
            cheap = temper(key_cheap, start, log_prior, log_cheap, sweep=sweep, settle=0)
            run = temper(
                key,
                cheap.particles.positions,
                lambda u: log_prior(u) + log_cheap(u),
                lambda u: log_likelihood(u) - log_cheap(u),
                sweep=SurrogateSweep.for_dimension(start.shape[1]),
                **end,
            )
            evidence = cheap.log_evidence + run.log_evidence
            return run._replace(log_evidence=evidence, n_temperatures=cheap.n_temperatures, path=cheap.path)

        keys, starts = jr.split(key, self.islands), prior_draws.reshape(self.islands, per_island, -1)
        if part is None:
            run = jax.vmap(one_island)(keys, over_devices(starts, axes=2))
        else:
            run = jax.tree.map(lambda leaf: leaf[None], one_island(keys[part], starts[part]))
        # (island, particle, kept, dim): a particle's kept draws stay neighbours, so that their correlation shows.  If
        # not all are wanted, they are left out evenly: copies of a particle are neighbours too.
        each, there = -(-wanted // self.islands), per_island * kept
        number = jnp.arange(-(-n // self.islands))
        passed_over = jnp.floor(number * ((there - each) / each)).astype(int)  # a product of integers might overflow
        chosen = jnp.minimum(number + passed_over, there - 1)
        draws = run.draws[:, chosen // kept, chosen % kept]
        last = jnp.maximum(run.n_temperatures - 1, 0)
        acceptance = jax.vmap(lambda path, i: path[i])(run.path.walk_acceptance, last)
        return Sampled(draws, jnp.mean(acceptance), run.log_evidence, run.path)


class Chains(AbstractPosteriorSampler):
    """Markov chains from prior draws, warmed up in coordinates whitened by the chains themselves.

    Args:
        kernel: any kernel of `unle.samplers`: `Nuts()`, `Hmc()`, `Mala()`, `RandomWalk()`.
        chains: number of chains.
        warm_up: steps of each of the two warm-up phases; the step size is frozen afterwards.
        thin: steps between kept draws.

    Example:
        >>> import unle
        >>> sampler = unle.Chains(unle.samplers.Nuts(), chains=8)
        >>> draws = posterior.sample(x_o, 1000, sampler=sampler)  # doctest: +SKIP
    """

    kernel: AbstractKernel = Nuts()
    chains: int = eqx.field(static=True, default=20)
    warm_up: int = eqx.field(static=True, default=200)
    thin: int = eqx.field(static=True, default=1)

    def __check_init__(self):
        check_chains(self)

    def prior_draws_needed(self, n):
        """Return 50 candidates per chain."""
        return 50 * self.chains

    def __call__(self, key, prior_draws, log_prior, log_likelihood, n, wanted=None, part=None):
        """Start at the likeliest of 50 prior draws each, warm up twice, then draw."""
        candidates = prior_draws.reshape(self.chains, 50, -1)
        heights = jax.vmap(jax.vmap(log_likelihood))(candidates)
        best = jnp.argmax(jnp.where(jnp.isnan(heights), -jnp.inf, heights), axis=1)
        starts = candidates[jnp.arange(self.chains), best]
        whitening, steps = fit_whitening(prior_draws), SharedStepSize()
        return _warmed_up(self, key, starts, whitening, lambda u: log_prior(u) + log_likelihood(u), steps, n, wanted)


class WarmChains(AbstractPosteriorSampler):
    """Markov chains that go on from given points, as the paper samples posteriors from round to round.

    They stay in the modes that they start in.  That is a weakness where modes were missed, and a strength where a
    likelihood that was learned in some region alone is wild elsewhere.
    """

    kernel: AbstractKernel = Mala()  # how chains move
    chains: int = eqx.field(static=True, default=500)  # their number, if they start at the prior
    # steps of each of the two warm-up phases; the step size of each chain is frozen afterwards
    warm_up: int = eqx.field(static=True, default=200)
    thin: int = eqx.field(static=True, default=10)  # steps between kept draws
    # where each chain starts, in the prior's unconstrained coordinates; None for draws of the prior
    starts: Float[Array, "chain dim"] | None = None

    def __check_init__(self):
        check_chains(self)

    def prior_draws_needed(self, n):
        """Return the number of chains."""
        return self.chains

    def __call__(self, key, prior_draws, log_prior, log_likelihood, n, wanted=None, part=None):
        """Warm up twice, then draw."""
        starts = prior_draws if self.starts is None else self.starts
        whitening, steps = fit_whitening(starts), PerChainStepSize()
        return _warmed_up(self, key, starts, whitening, lambda u: log_prior(u) + log_likelihood(u), steps, n, wanted)


def _warmed_up(
    settings: Chains | WarmChains,
    key: PRNGKeyArray,
    starts: Float[Array, "chain dim"],
    whitening: Whitening,
    log_density: LogDensity,
    step_size: AbstractStepSize,
    n: int,
    wanted: Int[Array, ""] | None,
) -> Sampled:
    """Warm up in these whitened coordinates, again in those of the chains, and draw with frozen step sizes."""
    keys = jr.split(key, 3)

    def run(key, positions, whitening, step_state, **options) -> ChainRun:
        return run_chains(
            key,
            jax.vmap(whitening.whiten)(positions),
            lambda z: log_density(whitening.colour(z)),
            kernel=settings.kernel,
            step_size=step_size,
            step_state=step_state,
            **options,
        )

    def warm_up(carry, key):
        positions, whitening = carry
        warm = run(key, positions, whitening, None, steps=settings.warm_up)
        positions = jax.vmap(whitening.colour)(warm.positions)
        return (positions, fit_whitening(positions)), (whitening, warm.step_state)

    # A scan over the two phases rather than two calls: half the time to compile.
    (positions, _), phases = jax.lax.scan(warm_up, (starts, whitening), keys[:2])
    whitening, step_state = jax.tree.map(lambda leaf: leaf[-1], phases)
    chains = starts.shape[0]
    keep = -(-n // chains)
    kept = None if wanted is None else -(-wanted // chains)
    steps, room = keep * settings.thin, Room(keep, kept)
    last = run(keys[2], positions, whitening, step_state, steps=steps, keep=room, adapt=False)
    assert last.draws is not None
    draws = jax.vmap(jax.vmap(whitening.colour))(last.draws)
    return Sampled(draws, last.acceptance, jnp.full(chains, jnp.nan), None)


def check_chains(settings: Any) -> None:
    """Refuse settings of Markov chains that make no draws."""
    if settings.chains < 2 or min(settings.warm_up, settings.thin) < 1:
        raise InputError(
            f"expected chains >= 2, warm_up >= 1 and thin >= 1; got {settings.chains}, {settings.warm_up} and "
            f"{settings.thin}; try {type(settings).__name__}()."
        )
