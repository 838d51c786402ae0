"""What methods have in common: settings that are checked, `fit` or `run`, and what a fit tells.

`AbstractAmortised` fits one set of simulations; `AbstractSequential` simulates and fits round after round around one
observation.  A fit tells numbers for the record, and one line for the user.
"""

import abc
import dataclasses
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from unle.arrays import as_count, as_seed, brief
from unle.errors import InputError, Outcome, check_names, no_attribute, other_names, warn_user
from unle.methods.energy_selection import Selected
from unle.methods.round_state import AbstractRoundState, Round, lost, observed_rows, recovered
from unle.methods.training_pairs import FEWEST, with_column_names, x_names_of
from unle.posterior import Posterior
from unle.progress import AbstractBar, progress, tell
from unle.simulators import Simulations, check_simulator, simulate_at
from unle.space import Prior, XSpace, check_prior
from unle.store import SimulationStore
from unle.train import Certificate, PaperFit

LAST_FIT = "Last fit, to all rounds"  # its name on the screen
ROUNDS_AND_LAST = "rounds and a last fit"
ELSEWHERE: dict[str, str] = dict.fromkeys(  # what other libraries call it
    ("append_simulations", "train", "build_posterior"),
    "posterior = unle.AUNLE(prior).fit(theta, x), or unle.SUNLE(prior, simulator).run(x_o, budget=1_000)",
)
FEWEST_PER_ROUND = 40  # simulations; a fit needs 32 valid ones, and some may fail


def no_metrics(**record: Any) -> None:
    """Write nothing down."""


def record_fit(
    metrics: Callable[..., None], selected: Selected, certificate: Certificate, x_space: XSpace, **more: Any
) -> None:
    """Write down what a fit came to, and what stands behind it."""
    choice, numbers = selected.choice, certificate._asdict()
    nats, error = numbers.pop("information"), numbers.pop("information_error")
    if nats is not None:
        metrics(stage="information", nats=nats, error=error)
    if choice.certificate is not None:  # bases are normalised by themselves
        metrics(stage="certificate", **numbers)
    metrics(
        stage="fitted",
        energy=selected.kind,
        noise=selected.noise,
        autoregressive=selected.is_autoregressive,
        sentence=selected.sentence,
        recognised=x_space.peculiarities,
        outcome=selected.fit.outcome.name,
        gain=choice.gain,
        replaced=choice.replaced,
        log_z=np.asarray(choice.log_z).tolist(),
        **more,
    )


def tell_user(selected: Selected, certificate: Certificate, x_space: XSpace) -> None:
    """Say what the data were taken for and what was kept, in one line each; warn of a fit that learned nothing."""
    if x_space.peculiarities:
        tell(x_space.peculiarities)
    tell(selected.sentence)
    if certificate.information is not None and not certificate.knows_theta:
        warn_user(
            "the fit is no better than one that ignores theta: either the data carry no information about the "
            "parameters, or it was not learned; the posterior is about the prior."
        )


def record_printed_fit(metrics: Callable[..., None], fit: PaperFit, *, recoveries: int) -> None:
    """Write down how the training of the paper's energy ended, and how often those of all rounds had to recover."""
    last = fit.history[-1]
    metrics(
        stage="fitted",
        energy="as printed",
        gain=fit.gain,
        outcome=fit.outcome.name,
        recoveries=recoveries,
        chunks=len(fit.history),
        acceptance=last["acceptance"],
        gap=last["gap"],
    )


def warn_of_divergence(fits: Sequence[PaperFit], *, instead: str) -> None:
    """Warn of energies of the paper, of all rounds, that should not be used as they are; name another method to try."""
    diverged = sum(fit.outcome is Outcome.DIVERGED for fit in fits)
    if diverged:
        rounds = "" if len(fits) == 1 else f" in {diverged} of {len(fits)} rounds"
        warn_user(
            f"the energy diverged{rounds}, and smaller steps did not help: the one with the best held-out likelihood "
            f"before is used; try a smaller learning_rate, or {instead}."
        )


def record_losses(metrics: Callable[..., None], history: Sequence[Round]) -> None:
    """Write down if x_o was lost in one of the rounds, and whether it was found again."""
    found_again = recovered(history)
    reason = lost(history) or found_again
    if reason is not None:
        metrics(stage="lost", reason=reason, recovered=found_again is not None)


class AbstractMethod(eqx.Module):
    """A way to learn a posterior from simulations of draws of a prior."""

    prior: eqx.AbstractVar[Prior]

    def __new__(cls, *_args: Any, **settings: Any):
        """Refuse settings that the method does not have, before anything is made of them."""
        fields = [field.name for field in dataclasses.fields(cls) if field.init]
        check_names(settings, fields, {"density_estimator": "base"}, f"unle.{cls.__name__}(prior), with the defaults")
        return super().__new__(cls)

    def __check_init__(self):
        check_prior(self.prior, self)
        members = getattr(self, "members", 1)
        if members < 1:
            raise InputError(f"expected at least one ensemble member; got {members}; try members=4.")

    def __getattr__(self, name: str) -> Any:
        """Say where to find what methods of other libraries have."""
        raise no_attribute(self, name, ELSEWHERE)

    def __repr__(self) -> str:
        """Show the prior and the settings that differ from the defaults."""
        return brief(self)


class AbstractAmortised(AbstractMethod):
    """A method that learns the posterior of every observation from one set of simulations."""

    @other_names(
        "unle.AUNLE(prior).fit(simulations); how it is trained is a setting of the method, "
        "as in unle.AUNLE(prior, training=unle.train.EnergyTraining())",
        theta="simulations",
        random_seed="seed",
    )
    @progress("Fitting the likelihood")
    def fit(
        self,
        simulations: Any,
        x: Any = None,
        *,
        seed: int = 0,
        on_metrics: Callable[..., None] | None = None,
        memory: int | float | str | None = None,
    ) -> Posterior:
        """Fit the likelihood, and return the posterior for any observation.

        Args:
            simulations: from `unle.simulate`; or a pair (theta, x) of arrays, one row per simulation, with theta drawn
                from the prior; or an open `SimulationStore`, which may hold more of them than fit in memory.
            x: the data, if theta and x are given one after the other: `fit(theta, x)` is `fit((theta, x))`.
            seed: fixes the fit: the same simulations in any order (if they fit in memory), on the same kind of machine
                with the same versions, give the same posterior to the bit; other machines round differently.
            on_metrics: called with keyword arguments, once per chunk of training as it ends and once with the
                summary of the fit; `RunDirectory.append_metrics` writes them down.
            memory: bytes, or such as "2GB", that the simulations of a store may take; if they need more, training sees
                them through a window of so many bytes, which is renewed as it goes on. Half of the machine's by
                default. The networks and the library itself take some hundred megabytes besides.
        """
        simulations = simulations if x is None else (simulations, x)
        method = replace(self, prior=with_column_names(self.prior, simulations))
        posterior = method._fit(simulations, as_seed(seed), no_metrics if on_metrics is None else on_metrics, memory)
        return replace(posterior, x_names=x_names_of(simulations))

    @abc.abstractmethod
    def _fit(
        self, simulations: Any, seed: int, metrics: Callable[..., None], memory: int | float | str | None
    ) -> Posterior:
        """Fit the likelihood; `metrics` takes what there is to write down."""


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

    def __repr__(self) -> str:
        """Return the posterior, and how it came about, in a few lines."""
        return f"{self.posterior!r}\n  learned in {len(self.rounds)} rounds from {self.simulations!r}"

    def __getattr__(self, name: str) -> Any:
        """Say that what posteriors have is one attribute further."""
        raise no_attribute(self, name, {name: f"run.posterior.{name}"} if name in vars(Posterior) else {})

    @property
    def lost(self) -> str | None:
        """A sentence if the simulations of the last round exclude x_o, and the posterior is not to be trusted."""
        return lost(self.rounds)


class AbstractSequential(AbstractMethod):
    """A method that learns a likelihood in rounds.  Subclasses define `begin`, `update` (one round) and `finish`."""

    prior: eqx.AbstractVar[Prior]
    simulator: eqx.AbstractVar[Callable | None]

    @abc.abstractmethod
    def begin(self, x_o: Any, *, budget: int | float, rounds: int | Sequence[int] = 10, seed: int = 0) -> Any:
        """Return the state before the first round; `state.propose()` has the parameters to simulate."""

    @abc.abstractmethod
    def update(self, state: Any, simulations: Any) -> Any:
        """Return the state after a round with simulations at `state.propose()`: a fit to those of all rounds."""

    @abc.abstractmethod
    def finish(self, state: Any, *, on_metrics: Callable[..., None] | None = None) -> SequentialRun:
        """Return the posterior from the simulations so far."""

    @other_names(
        "unle.SUNLE(prior, simulator).run(x_o, budget=1000)",
        x="x_o",
        observation="x_o",
        num_simulations="budget",
        n="budget",
        num_rounds="rounds",
        num_workers="workers",
        random_seed="seed",
    )
    def run(
        self,
        x_o: Any,
        *,
        budget: int | float,
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
        check_simulator(simulator, self.prior)
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
                    check_length=partial(_check_length, observed_rows(x_o, complete=False).shape[1]),
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
        with all_rounds(type(self).__name__, state) as bar:
            for number in range(state.number, len(state.sizes)):
                with progress(state.title):
                    state = self.update(state, simulate(state.propose(), number))
                bar.advance(note=ROUNDS_AND_LAST)
                if on_round is not None:
                    on_round(state.history[-1])
                metrics(stage="round", **state.history[-1]._asdict())
            record_losses(metrics, state.history)
            with progress(LAST_FIT):
                run = self.finish(state, on_metrics=on_metrics)
            bar.advance()
            return run


def _check_length(expected: int, dim_x: int) -> None:
    """Refuse simulations that are not as long as the observation, as soon as there is one."""
    if dim_x != expected:
        raise InputError(
            f"expected an observation of length {dim_x}, as the simulations; got {expected}; "
            "try the same summary statistics in the same order."
        )


def all_rounds(title: str, state: AbstractRoundState) -> AbstractContextManager[AbstractBar]:
    """Show the time of all rounds together, and how much of it is left; the last fit counts as one."""
    return progress(title, total=len(state.sizes) - state.number + 1, few=True)


def round_sizes(budget: int | float, rounds: int | Sequence[int]) -> list[int]:
    """Split the budget over the rounds, given as a number or by their sizes; earlier ones take what is left over.

    A small budget makes fewer rounds than were asked for, unless their sizes are given: a first round of a few
    simulations cannot be fitted.

    Example:
        >>> from unle.methods.abstract_method import round_sizes
        >>> round_sizes(1000, 3), round_sizes(100, 10)
        ([334, 333, 333], [50, 50])
    """
    budget = as_count(budget, "simulations", "budget")
    if not isinstance(rounds, Sequence | np.ndarray) or isinstance(rounds, str):
        if isinstance(rounds, int) and rounds < 1:
            raise InputError(f"expected at least one round; got rounds = {rounds}; try rounds=10.")
        rounds = as_count(rounds, "rounds", "rounds")
        if budget < FEWEST:
            raise InputError(f"expected a budget of at least {FEWEST} simulations; got {budget}; try budget=1000.")
        fewer = max(1, min(rounds, budget // FEWEST_PER_ROUND))
        if fewer < rounds:
            tell(f"Rounds: {fewer} instead of {rounds}, each needs {FEWEST_PER_ROUND} simulations at least.")
        return [budget // fewer + (i < budget % fewer) for i in range(fewer)]
    sizes = [int(size) for size in rounds]
    if not sizes or min(sizes) < 1 or sum(sizes) != budget:
        raise InputError(f"expected sizes of rounds that add up to the budget of {budget}; got {sizes}.")
    return sizes
