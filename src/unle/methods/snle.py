r"""Sequential neural likelihood estimation: a flow for the likelihood, learned in rounds around one observation.

The rounds are those of SUNLE (`unle.methods.rounds`): proposals from the posterior so far, tempered as long as the
simulations do not support all of it, and a fit to the simulations of the region that proposals have come to.  Only the
likelihood differs: a normalising flow instead of a Gaussian with an energy.

Reference: Papamakarios, Sterratt and Murray, "Sequential neural likelihood", 2019.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx

from unle.methods.rounds import RoundState, close_round, open_round
from unle.methods.sequential import AbstractSequential, SequentialRun, round_sizes
from unle.models import AbstractFlow, Maf
from unle.posterior import AbstractPosteriorSampler, Posterior, TemperedSmc
from unle.space import Prior
from unle.train import Descent, FlowTraining


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

    def begin(self, x_o: Any, *, budget: int, rounds: Any = 10, seed: int = 0) -> RoundState:
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
        posterior = Posterior(self.prior, fit.restrict(fit.likelihood), self.sampler)
        return SequentialRun(posterior, state.simulations, state.history)
