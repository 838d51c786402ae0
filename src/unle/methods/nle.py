r"""Neural likelihood estimation: a normalising flow q(x | theta) for the likelihood.

A flow is normalised, so the posterior p(theta) q(x_o | theta) is an ordinary one.  It is fitted by maximum likelihood
of simulated pairs, standardised as AUNLE does; the point of training with the best held-out likelihood is kept.

`NLE` learns from prior simulations, for every observation.  `SNLE` learns in rounds around one.  These are the rounds
of SUNLE (`unle.methods.rounds`): proposals from the posterior so far, tempered as long as the simulations do not
support all of it, and a fit to the simulations of the region that proposals have come to.

Reference: Papamakarios, Sterratt and Murray, "Sequential neural likelihood", 2019.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from unle.methods.abstract_method import AbstractAmortised, AbstractSequential, SequentialRun, round_sizes
from unle.methods.rounds import RoundState, close_round, open_round
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


class SNLE(AbstractSequential):
    """Infer the posterior of one observation in rounds, with a flow.

    Args:
        prior: of theta.
        simulator: as for `unle.simulate`; None if simulations are brought by hand (see `begin`).
        flow: design of the flow: `Maf()`, or `SplineFlow()` for sharp or multi-modal likelihoods.
        training: how it is trained, anew in every round.
        members: size of the ensemble; 1 is the method of the literature.
        sampler: how the posterior is sampled.

    Example:
        >>> import unle
        >>> prior = unle.Prior.uniform(low=[-1.0], high=[1.0])
        >>> snle = unle.SNLE(prior, lambda theta, rng: theta + 0.1 * rng.normal())
        >>> run = snle.run([0.3], budget=1000, rounds=5)  # doctest: +SKIP
        >>> draws = run.posterior.sample([0.3], 1000)  # doctest: +SKIP
    """

    prior: Prior
    simulator: Callable | None = eqx.field(static=True, default=None)
    flow: AbstractFlow = Maf()
    training: Descent = Descent()
    members: int = eqx.field(static=True, default=1)
    sampler: AbstractPosteriorSampler = TemperedSmc()

    def begin(self, x_o: Any, *, budget: int | float, rounds: Any = 10, seed: int = 0) -> RoundState:
        return RoundState.begin(self.prior, x_o, round_sizes(budget, rounds), seed=seed)

    def update(self, state: RoundState, simulations: Any) -> RoundState:
        """Return the state after a round: a new flow, and draws of its posterior."""
        flow = FlowTraining(self.flow, self.training)
        return close_round(open_round(state, simulations, base=flow, members=self.members))

    def finish(self, state: RoundState, *, on_metrics: Callable[..., None] | None = None) -> SequentialRun:
        """Return the posterior of the last round's flow."""
        fit = state.fitting
        if on_metrics is not None:
            on_metrics(stage="fitted", rows=len(fit.rows.t))
        names = state.simulations.x_names
        posterior = Posterior(self.prior, fit.restrict(fit.likelihood), self.sampler, x_names=names)
        return SequentialRun(posterior, state.simulations, state.history)
