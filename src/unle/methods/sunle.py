r"""Sequential UNLE: an energy-based likelihood, learned in rounds around one observation.

1. Simulate at parameters drawn from the prior, later from the posterior so far, tempered (`unle.methods.proposals`).
2. Fit an ensemble of conditional Gaussians q0(x | theta) to the simulations near the posterior; they make proposals.
3. After the last round, train energies on top of them by maximum likelihood,

       q(x | theta) = q0(x | theta) exp(-E(theta, x)) / Z(theta),

   and keep them if they raise the held-out likelihood.  Of the joint model over the parameters that were simulated, Z
   becomes constant; of the conditional model it does not, and has to be learned or cancelled: see
   `unle.methods.normalising`.

Reference: Glaser et al., "Maximum likelihood learning of unnormalized models for simulation-based inference", 2023.
"""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax.random as jr
import numpy as np

from unle.errors import InputError
from unle.methods.normalising import AbstractNormalising, Fitted, Tilted
from unle.methods.rounds import Rounds
from unle.methods.selection import gated, simplest_as_good
from unle.methods.sequential import AbstractSequential, SequentialRun, round_sizes
from unle.models import Ensemble
from unle.posterior import AbstractStrategy, Posterior, TemperedSmc
from unle.space import Prior
from unle.train import (
    AbstractBaseTraining,
    GaussianTraining,
    JointSpace,
    TiltedTraining,
    fit_tilted,
)


class SUNLE(AbstractSequential):
    """Infer the posterior of one observation in rounds of simulations.

    Args:
        prior: of theta.
        simulator: as for `unle.simulate`; None if simulations are brought by hand (see `begin`).
        base: how bases are fitted.
        members: size of the ensemble.
        normalising: how energies are trained and their Z(theta) dealt with: `Tilted()`, `Divi()`, `Online()` or
            `ByExchange()`.
        training: how energies are trained, if not as `normalising` has it.
        strategy: how an ordinary posterior is sampled.

    Example:
        >>> import unle
        >>> prior = unle.Prior.uniform(low=[-1.0], high=[1.0])
        >>> sunle = unle.SUNLE(prior, lambda theta, rng: theta + 0.1 * rng.normal())
        >>> run = sunle.run([0.3], budget=1000, rounds=5)  # doctest: +SKIP
        >>> draws = run.posterior.sample([0.3], 1000)  # doctest: +SKIP
    """

    prior: Prior
    simulator: Callable | None = eqx.field(static=True, default=None)
    base: AbstractBaseTraining = GaussianTraining()
    members: int = eqx.field(static=True, default=5)
    normalising: AbstractNormalising = Tilted()
    training: TiltedTraining | None = None
    strategy: AbstractStrategy = TemperedSmc()

    def __check_init__(self):
        if self.members < 1:
            raise InputError(f"expected at least one ensemble member; got {self.members}; try members=5.")

    def begin(self, x_o: Any, *, budget: int, rounds: int | Sequence[int] = 10, seed: int = 0) -> Rounds:
        """Return the rounds to drive by hand: `propose`, simulate, `add`, and in the end `finish`."""
        return Rounds(self.prior, x_o, round_sizes(budget, rounds), base=self.base, members=self.members, seed=seed)

    def finish(self, state: Rounds, *, on_metrics: Callable[..., None] | None = None) -> SequentialRun:
        """Train the energies on the simulations so far, and return the posterior."""
        likelihood, strategy = self._likelihood(state, on_metrics)
        posterior = Posterior(self.prior, likelihood, strategy)
        return SequentialRun(posterior, state.simulations, tuple(state.history))

    def _likelihood(self, state: Rounds, on_metrics):
        data = state.fitting
        key_fit, key_gate, key_z = jr.split(jr.fold_in(jr.key(state.seed), 10_000), 3)
        joint = JointSpace.of(self.prior, data.theta_space)
        settings = self.training or self.normalising.energies

        def on_chunk(record):
            if on_metrics is not None:
                on_metrics(stage="training", **record)

        rows = (data.t, data.w, data.splits)
        fits = [
            fit_tilted(key, joint, data.bases, *rows, settings=settings, sees_theta=sees, on_chunk=on_chunk)
            for key, sees in zip(jr.split(key_fit), (False, True), strict=True)
        ]
        fit = simplest_as_good(*fits)
        choice = gated(key_gate, joint, data.bases, fit, *rows, settings.particles)
        kept = "none" if choice.gain == 0 else "theta-free" if fit is fits[0] else "full"
        if on_metrics is not None:
            on_metrics(stage="fitted", energy=kept, outcome=fit.outcome.name, gain=choice.gain)
            if state.validity is not None:
                on_metrics(stage="validity", **{k: v for k, v in state.validity._asdict().items() if k != "validity"})
        if kept == "none" or fit.validation is None:
            return data.likelihood, self.strategy  # normalised bases: an ordinary posterior
        order = [int(k) for k in np.argsort(-np.asarray(fit.validation.gain))]
        ensemble = Ensemble(data.theta_space, data.x_space, choice.models, choice.log_z)
        resolved = self.normalising(key_z, Fitted(ensemble, order, state.proposals, fit.particles, data.t))
        if on_metrics is not None:
            errors = {"error": resolved.error, "error_sd": resolved.error_sd, "noise_sd": resolved.noise_sd}
            on_metrics(stage="normalised", **errors)
        return state.focused(resolved.likelihood), resolved.strategy
