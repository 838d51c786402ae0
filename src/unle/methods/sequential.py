"""The front end of sequential methods: simulate and fit round after round around one observation."""

import abc
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from unle.errors import InputError
from unle.methods.abstract_method import AbstractMethod, no_metrics, record_losses
from unle.methods.round_history import Round, lost
from unle.methods.round_state import AbstractRoundState
from unle.posterior import Posterior
from unle.progress import progress, tell
from unle.simulators import Simulations, simulate_at
from unle.space import Prior
from unle.store import SimulationStore

LAST_FIT = "Last fit, to all rounds"  # its name on the screen
FEWEST_PER_ROUND = 40  # simulations; a fit needs 32 valid ones, and some may fail


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

    @property
    def lost(self) -> str | None:
        """A sentence if the simulations of the last round exclude x_o, and the posterior is not to be trusted."""
        return lost(self.rounds)


class AbstractSequential(AbstractMethod):
    """A method that learns a likelihood in rounds.  Subclasses define `begin`, `update` (one round) and `finish`."""

    prior: eqx.AbstractVar[Prior]
    simulator: eqx.AbstractVar[Callable | None]

    @abc.abstractmethod
    def begin(self, x_o: Any, *, budget: int, rounds: int | Sequence[int] = 10, seed: int = 0) -> Any:
        """Return the state before the first round; `state.propose()` has the parameters to simulate."""

    @abc.abstractmethod
    def update(self, state: Any, simulations: Any) -> Any:
        """Return the state after a round with simulations at `state.propose()`: a fit to those of all rounds."""

    @abc.abstractmethod
    def finish(self, state: Any, *, on_metrics: Callable[..., None] | None = None) -> SequentialRun:
        """Return the posterior from the simulations so far."""

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
            executor: a `concurrent.futures.Executor` to simulate with, instead of `workers`.
            timeout: seconds for one simulation.
            on_round: called with what each round did.
            on_metrics: called with keyword arguments as training goes on.

        Returns:
            The posterior, the simulations, and what each round did.
        """
        simulator = self.simulator
        if simulator is None:
            raise InputError(
                f"expected a simulator to run; try {type(self).__name__}(prior, simulator), "
                "or begin() and update() to bring your own simulations."
            )
        state = self.begin(x_o, budget=budget, rounds=rounds, seed=seed)
        path = None if directory is None else Path(directory)
        if path is not None:
            path.mkdir(parents=True, exist_ok=True)
        with SimulationStore(None if path is None else path / "simulations.sqlite") as store:
            return self.run_rounds(
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

    def run_rounds(
        self,
        state: AbstractRoundState,
        simulate: Callable[[np.ndarray, int], Simulations],
        *,
        on_round: Callable[[Round], None] | None = None,
        on_metrics: Callable[..., None] | None = None,
    ) -> SequentialRun:
        """Run all rounds that are left with a function from (theta, number of the round) to simulations."""
        metrics = no_metrics if on_metrics is None else on_metrics
        with progress(type(self).__name__):  # its clock shows the time of all rounds together
            for number in range(state.number, len(state.sizes)):
                with progress(state.title):
                    state = self.update(state, simulate(state.propose(), number))
                if on_round is not None:
                    on_round(state.history[-1])
                metrics(stage="round", **state.history[-1]._asdict())
            record_losses(metrics, state.history)
            with progress(LAST_FIT):
                return self.finish(state, on_metrics=on_metrics)


def round_sizes(budget: int, rounds: int | Sequence[int]) -> list[int]:
    """Split the budget over the rounds, given as a number or by their sizes; earlier ones take what is left over.

    A small budget makes fewer rounds than were asked for, unless their sizes are given: a first round of a few
    simulations cannot be fitted.

    Example:
        >>> from unle.methods.sequential import round_sizes
        >>> round_sizes(1000, 3), round_sizes(100, 10)
        ([334, 333, 333], [50, 50])
    """
    if isinstance(rounds, int):
        if rounds < 1 or budget < rounds:
            raise InputError(f"expected between 1 and {budget} rounds; got {rounds}; try rounds=10.")
        fewer = max(1, min(rounds, budget // FEWEST_PER_ROUND))
        if fewer < rounds:
            tell(f"Rounds: {fewer} instead of {rounds}, each needs {FEWEST_PER_ROUND} simulations at least.")
        return [budget // fewer + (i < budget % fewer) for i in range(fewer)]
    sizes = [int(size) for size in rounds]
    if not sizes or min(sizes) < 1 or sum(sizes) != budget:
        raise InputError(f"expected sizes of rounds that add up to the budget of {budget}; got {sizes}.")
    return sizes
