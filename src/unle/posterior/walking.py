"""Exchange chains as the paper runs them: Gaussian walks from the prior, or from where the last round left them."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from unle.errors import InputError
from unle.posterior.doubly_intractable import AbstractDoublyIntractableSampler
from unle.posterior.posterior_samplers import Sampled
from unle.samplers import AbstractInner, AbstractProposal, TemperedInner, Walk, exchange


class WalkingExchange(AbstractDoublyIntractableSampler):
    """The exchange algorithm alone: no approximation of Z(theta), no tempering.

    It is local: modes of the posterior that no chain starts in are not found.  `Exchange` finds them.

    Args:
        chains: number of chains, if they start at the prior.
        warm_up: steps before the first draw, in which step sizes and the covariance of the walks are tuned.
        thin: steps between kept draws.
        inner: how auxiliary data are drawn.
        proposal: how chains propose.
        starts: theta to start chains from, one each, in place of draws of the prior: those of the previous round.
    """

    chains: int = eqx.field(static=True, default=500)
    warm_up: int = eqx.field(static=True, default=100)
    thin: int = eqx.field(static=True, default=5)
    inner: AbstractInner = TemperedInner()
    proposal: AbstractProposal = Walk()
    starts: Float[Array, "chain dim"] | None = None

    def __check_init__(self):
        if self.chains < 2 or min(self.warm_up, self.thin) < 1:
            raise InputError(
                "expected chains >= 2, warm_up >= 1 and thin >= 1; got "
                f"{self.chains}, {self.warm_up} and {self.thin}; try WalkingExchange()."
            )

    def prior_draws_needed(self, n):
        """Return the number of chains."""
        return self.chains

    def __call__(self, key, positions, target, n):
        """Walk."""
        run = exchange(
            key,
            positions,
            target.log_prior,
            target.log_likelihood,
            target.family,
            keep=-(-n // positions.shape[0]),
            thin=self.thin,
            warm_up=self.warm_up,
            condition=target.condition,
            rows=target.rows,
            proposal=self.proposal,
            inner=self.inner,
        )
        return Sampled(run.draws, run.acceptance, jnp.full((1,), jnp.nan), None, run.inner)
