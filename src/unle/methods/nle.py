r"""Neural likelihood estimation: a normalising flow for the likelihood, from prior simulations, for every observation.

1. Standardise theta and x, with marginal transforms chosen from the data, as AUNLE does.
2. Fit a flow q(x | theta) by maximum likelihood of the simulated pairs; keep the point of training with the best
   held-out likelihood.

A flow is normalised, so the posterior p(theta) q(x_o | theta) is an ordinary one.

Reference: Papamakarios, Sterratt and Murray, "Sequential neural likelihood", 2019.
"""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from unle.methods.abstract_method import AbstractAmortised
from unle.methods.training_pairs import standardised_pairs
from unle.models import AbstractFlow, EnergyModel, Ensemble, Maf, NoEnergy
from unle.posterior import AbstractPosteriorSampler, Posterior, TemperedSmc
from unle.space import Prior
from unle.train import Descent, FlowTraining


class NLE(AbstractAmortised):
    """Fit a flow to prior simulations; the posterior of any observation follows.

    Args:
        prior: of theta.
        flow: design of the flow: `Maf()`, or `SplineFlow()` for sharp or multi-modal likelihoods.
        training: how it is trained.
        members: size of the ensemble; 1 is the method of the literature.
        sampler: how the posterior is sampled.

    Example:
        >>> import unle
        >>> prior = unle.Prior.uniform(low=[-1.0], high=[1.0])
        >>> sims = unle.simulate(lambda theta, rng: theta + 0.1 * rng.normal(), prior, 200, seed=0)
        >>> posterior = unle.NLE(prior).fit(sims, seed=1)  # doctest: +SKIP
        >>> draws = posterior.sample([0.3], 1000, seed=2)  # doctest: +SKIP
    """

    prior: Prior
    flow: AbstractFlow = Maf()
    training: Descent = Descent()
    members: int = eqx.field(static=True, default=1)
    sampler: AbstractPosteriorSampler = TemperedSmc()

    def _fit(self, simulations, seed, metrics, memory):
        key_split, key_fit, key_validity = jr.split(jr.key(seed), 3)
        pairs = standardised_pairs(key_split, simulations, self.prior, members=self.members, memory=memory)

        training = FlowTraining(self.flow, self.training)
        flows, outcome = training.fit_flows(
            key_fit, pairs.rows, on_chunk=lambda record: metrics(stage="descent", **record)
        )
        held_out = -float(np.mean(np.asarray(outcome.losses)))
        metrics(stage="fitted", held_out_log_likelihood=held_out, steps=outcome.steps)
        ensemble = Ensemble(pairs.theta_space, pairs.x_space, EnergyModel(flows, NoEnergy()), jnp.zeros(self.members))
        return Posterior(self.prior, pairs.given_valid(key_validity, ensemble, metrics), self.sampler)
