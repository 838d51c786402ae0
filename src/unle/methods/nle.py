r"""Neural likelihood estimation: a normalising flow for the likelihood, from prior simulations, for every observation.

1. Standardise theta and x, with marginal transforms chosen from the data, as AUNLE does.
2. Fit a flow q(x | theta) by maximum likelihood of the simulated pairs; keep the point of training with the best
   held-out likelihood.

A flow is normalised, so the posterior p(theta) q(x_o | theta) is an ordinary one.

Reference: Papamakarios, Sterratt and Murray, "Sequential neural likelihood", 2019.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from unle.errors import InputError
from unle.methods.abstract_method import AbstractMethod
from unle.methods.metrics import no_metrics
from unle.methods.training_pairs import standardised_pairs
from unle.models import AbstractFlow, Ensemble, Maf, NoEnergy, TiltedModel
from unle.posterior import AbstractPosteriorSampler, Posterior, TemperedSmc
from unle.space import Prior
from unle.train import Descent, FlowTraining


class NLE(AbstractMethod):
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

    def __check_init__(self):
        if self.members < 1:
            raise InputError(f"expected at least one ensemble member; got {self.members}; try members=1.")

    def fit(
        self,
        simulations: Any,
        *,
        seed: int = 0,
        on_metrics: Callable[..., None] | None = None,
        memory: int | float | str | None = None,
    ) -> Posterior:
        """Fit the flow.

        Args:
            simulations: from `unle.simulate`, or a pair (theta, x) of arrays, one row per simulation; or an open
                `SimulationStore`.
            seed: fixes the fit.
            on_metrics: called with keyword arguments, once per chunk of training and once with the summary.
            memory: what the simulations of a store may take; see `AUNLE.fit`.

        Returns:
            The posterior, for any observation.
        """
        key_split, key_fit, key_validity = jr.split(jr.key(seed), 3)
        pairs = standardised_pairs(key_split, simulations, self.prior, members=self.members, memory=memory)
        metrics = no_metrics if on_metrics is None else on_metrics

        training = FlowTraining(self.flow, self.training)
        flows, outcome = training.fit_flows(
            key_fit, pairs.rows, on_chunk=lambda record: metrics(stage="descent", **record)
        )
        held_out = -float(np.mean(np.asarray(outcome.losses)))
        metrics(stage="fitted", held_out_log_likelihood=held_out, steps=outcome.steps)
        ensemble = Ensemble(pairs.theta_space, pairs.x_space, TiltedModel(flows, NoEnergy()), jnp.zeros(self.members))
        return Posterior(self.prior, pairs.given_valid(key_validity, ensemble, metrics), self.sampler)
