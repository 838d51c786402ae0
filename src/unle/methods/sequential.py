"""The front end of sequential methods: simulate and fit round after round around one observation."""

import abc
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from unle.errors import InputError
from unle.methods.abstract_rounds import AbstractRounds
from unle.methods.history import Round, lost, recovered
from unle.posterior import Posterior
from unle.simulators import Simulations, simulate_at
from unle.space import Prior
from unle.store import SimulationStore


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


class AbstractSequential(eqx.Module):
    """A method that learns a likelihood in rounds; to make one, say how rounds begin and what becomes of the last.

    Attributes:
        prior: of theta.
        simulator: as for `unle.simulate`, or None.
    """

    prior: eqx.AbstractVar[Prior]
    simulator: eqx.AbstractVar[Callable | None]

    @abc.abstractmethod
    def begin(self, x_o: Any, *, budget: int, rounds: int | Sequence[int] = 10, seed: int = 0) -> AbstractRounds:
        """Return the rounds to drive by hand: `propose`, simulate, `add`, and in the end `finish`."""

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
            executor: or where else to simulate.
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
                "or begin() to bring your own."
            )
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

    def drive(
        self,
        state: Any,
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
        if on_metrics is not None:
            note_losses(state.history, on_metrics)
        return self.finish(state, on_metrics=on_metrics)


def note_losses(history: Sequence[Round], on_metrics: Callable[..., None]) -> None:
    """Note if x_o was lost in one of the rounds, and whether it was found again."""
    found_again = recovered(history)
    reason = lost(history) or found_again
    if reason is not None:
        on_metrics(stage="lost", reason=reason, recovered=found_again is not None)


def round_sizes(budget: int, rounds: int | Sequence[int]) -> list[int]:
    """Split the budget over the rounds; earlier ones take what is left over."""
    if isinstance(rounds, int):
        if rounds < 1 or budget < rounds:
            raise InputError(f"expected between 1 and {budget} rounds; got {rounds}; try rounds=10.")
        return [budget // rounds + (i < budget % rounds) for i in range(rounds)]
    sizes = [int(size) for size in rounds]
    if not sizes or min(sizes) < 1 or sum(sizes) != budget:
        raise InputError(f"expected sizes of rounds that add up to the budget of {budget}; got {sizes}.")
    return sizes
