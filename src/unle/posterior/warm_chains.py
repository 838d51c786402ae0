"""Markov chains that go on from given points: local, as the paper samples posteriors from round to round."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from unle.errors import InputError
from unle.posterior.posterior_samplers import AbstractPosteriorSampler, Sampled
from unle.samplers import AbstractKernel, Mala, PerChainStepSize, fit_whitening, run_chains


class WarmChains(AbstractPosteriorSampler):
    """Chains in coordinates whitened by where they start, and again by where they are after the warm-up.

    They stay in the modes that they start in.  That is a weakness where modes were missed, and a strength where a
    likelihood that was learned in some region alone is wild elsewhere.

    Args:
        kernel: how chains move.
        chains: their number, if they start at the prior.
        warm_up: steps of each of the two warm-up phases; the step size of each chain is frozen afterwards.
        thin: steps between kept draws.
        starts: where each chain starts, in the prior's unconstrained coordinates; None for draws of the prior.
    """

    kernel: AbstractKernel = Mala()
    chains: int = eqx.field(static=True, default=500)
    warm_up: int = eqx.field(static=True, default=200)
    thin: int = eqx.field(static=True, default=10)
    starts: Float[Array, "chain dim"] | None = None

    def __check_init__(self):
        if self.chains < 2 or min(self.warm_up, self.thin) < 1:
            raise InputError(
                "expected chains >= 2, warm_up >= 1 and thin >= 1; got "
                f"{self.chains}, {self.warm_up} and {self.thin}; try WarmChains()."
            )

    def prior_draws_needed(self, n):
        """Return the number of chains."""
        return self.chains

    def __call__(self, key, prior_draws, log_prior, log_likelihood, n):
        """Warm up twice, then draw."""
        starts = prior_draws if self.starts is None else self.starts
        keys = jr.split(key, 3)

        def run(key, positions, whitening, step_state, **options):
            def density(z):
                u = whitening.colour(z)
                return log_prior(u) + log_likelihood(u)

            whitened = jax.vmap(whitening.whiten)(positions)
            how = {"kernel": self.kernel, "step_size": PerChainStepSize(), "step_state": step_state}
            return run_chains(key, whitened, density, **how, **options)

        def warm_up(positions, key):
            whitening = fit_whitening(positions)
            warm = run(key, positions, whitening, None, steps=self.warm_up)
            return jax.vmap(whitening.colour)(warm.positions), (whitening, warm.step_state)

        # A scan over the two phases rather than two calls: half the time to compile.
        positions, phases = jax.lax.scan(warm_up, starts, keys[:2])
        whitening, step_state = jax.tree.map(lambda leaf: leaf[-1], phases)
        keep = -(-n // starts.shape[0])
        last = run(keys[2], positions, whitening, step_state, steps=keep * self.thin, keep=keep, adapt=False)
        draws = jax.vmap(jax.vmap(whitening.colour))(last.draws)
        return Sampled(draws, last.acceptance, jnp.full(starts.shape[0], jnp.nan), None)
