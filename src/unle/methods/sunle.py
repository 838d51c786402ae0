r"""Sequential UNLE: a conditional energy-based likelihood, learned in rounds around one observation.

1. Simulate at parameters drawn from the prior, later from the posterior so far, tempered (`unle.methods.proposals`).
2. Fit an ensemble of conditional Gaussians q0(x | theta) to the simulations near the posterior; they make proposals.
3. After the last round, train energies on top of them by conditional maximum likelihood,

       mean_i log q(x_i | theta_i),   q(x | theta) = q0(x | theta) exp(-E(theta, x)) / Z(theta),

   and keep them if they raise the held-out likelihood.
4. Z(theta) depends on theta now: learn it (DIVI) or cancel it (exchange), see `unle.methods.normalising`.

Reference: Glaser et al., "Maximum likelihood learning of unnormalized models for simulation-based inference", 2023.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax.random as jr
import numpy as np

from unle.errors import InputError
from unle.methods.normalising import AbstractNormalising, Fitted, Tilted
from unle.methods.rounds import Round, Rounds
from unle.methods.selection import gated, simplest_as_good
from unle.models import Ensemble
from unle.posterior import AbstractStrategy, Posterior, TemperedSmc
from unle.simulate import Simulations, simulate_at
from unle.space import Prior
from unle.store import SimulationStore
from unle.train import (
    AbstractBaseTraining,
    GaussianTraining,
    JointSpace,
    TiltedTraining,
    fit_tilted,
)


class SequentialRun(NamedTuple):
    """The outcome of a sequential inference.

    Attributes:
        posterior: trustworthy at the run's own observation; the likelihood was learned for no other.
        simulations: of all rounds.
        rounds: what each round did.
    """

    posterior: Posterior
    simulations: Simulations
    rounds: tuple[Round, ...]


class SUNLE(eqx.Module):
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

    def run(
        self,
        x_o: Any,
        *,
        budget: int,
        rounds: int | Sequence[int] = 10,
        seed: int = 0,
        directory: str | Path | None = None,
        workers: int | None = None,
        executor: Executor | None = None,
        timeout: float | None = None,
        on_round: Callable[[Round], None] | None = None,
        on_metrics: Callable[..., None] | None = None,
    ) -> SequentialRun:
        """Simulate and fit round after round.

        Args:
            x_o: the observation, one data vector or i.i.d. rows.
            budget: number of simulations over all rounds.
            rounds: how many rounds of equal size, or the size of each.
            seed: fixes the result.
            directory: keep simulations in `directory/simulations.sqlite`, so that a run that was interrupted goes on.
            workers: processes that simulate; see `unle.simulate`.
            executor: or where else to simulate.
            timeout: seconds for one simulation.
            on_round: called with what each round did.
            on_metrics: called with keyword arguments as training goes on.

        Returns:
            The posterior, the simulations, and what each round did.
        """
        simulator = self.simulator
        if simulator is None:
            raise InputError("expected a simulator to run; try SUNLE(prior, simulator), or begin() to bring your own.")
        state = self.begin(x_o, budget=budget, rounds=rounds, seed=seed)
        path = None if directory is None else Path(directory)
        if path is not None:
            path.mkdir(parents=True, exist_ok=True)
        with SimulationStore(None if path is None else path / "simulations.sqlite") as store:
            return self.drive(
                state,
                lambda theta, number: simulate_at(
                    simulator,
                    theta,
                    seed=seed,
                    round=number,
                    store=store,
                    workers=workers,
                    executor=executor,
                    timeout=timeout,
                ),
                on_round=on_round,
                on_metrics=on_metrics,
            )

    def begin(self, x_o: Any, *, budget: int, rounds: int | Sequence[int] = 10, seed: int = 0) -> Rounds:
        """Return the rounds to drive by hand: `propose`, simulate, `add`, and in the end `finish`."""
        return Rounds(self.prior, x_o, _sizes(budget, rounds), base=self.base, members=self.members, seed=seed)

    def drive(
        self,
        state: Rounds,
        simulate: Callable[[np.ndarray, int], Simulations],
        *,
        on_round: Callable[[Round], None] | None = None,
        on_metrics: Callable[..., None] | None = None,
    ) -> SequentialRun:
        """Run all rounds that are left with a function from (theta, number of the round) to simulations."""
        while state.number < len(state.sizes):
            done = state.add(simulate(state.propose(), state.number))
            if on_round is not None:
                on_round(done)
            if on_metrics is not None:
                on_metrics(stage="round", **done._asdict())
        return self.finish(state, on_metrics=on_metrics)

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
        if kept == "none" or fit.validation is None:
            return data.likelihood, self.strategy  # normalised bases: an ordinary posterior
        order = [int(k) for k in np.argsort(-np.asarray(fit.validation.gain))]
        ensemble = Ensemble(data.theta_space, data.x_space, choice.models, choice.log_z)
        resolved = self.normalising(key_z, Fitted(ensemble, order, state.proposals, fit.particles, data.t))
        if on_metrics is not None:
            on_metrics(stage="normalised", error=resolved.error)
        return state.focused(resolved.likelihood), resolved.strategy


def _sizes(budget: int, rounds: int | Sequence[int]) -> list[int]:
    """Split the budget over the rounds; earlier ones take what is left over."""
    if isinstance(rounds, int):
        if rounds < 1 or budget < rounds:
            raise InputError(f"expected between 1 and {budget} rounds; got {rounds}; try rounds=10.")
        return [budget // rounds + (i < budget % rounds) for i in range(rounds)]
    sizes = [int(size) for size in rounds]
    if not sizes or min(sizes) < 1 or sum(sizes) != budget:
        raise InputError(f"expected sizes of rounds that add up to the budget of {budget}; got {sizes}.")
    return sizes
