"""What the benchmark runs: something that turns a task and a budget of simulations into posterior draws.

To enter a method of your own, derive from `AbstractMethodAdapter`, or wrap a front-end that has `fit` (`Amortised`) or
`run` (`Sequential`), and name it in the table of `unle_bench.methods.registry`, or in a file that is given to
`unle bench --with FILE`. `FromPrior` and `Exact` mark the ends of the scale.
"""

import abc
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax
import numpy as np

from unle.posterior import Posterior
from unle.simulators import batched, simulate_at
from unle_bench.tasks.task import Task

SIMULATION_SEED = 1000  # added to the seed of a run for its simulations; prior draws and fits have the seed itself


@dataclass
class Outcome:
    """What a method hands back.

    Attributes:
        draws: by number of the observation, (n, d) each; an observation that is missing, or not finite, has failed.
        seconds: by stage, "simulate", "train" and "infer"; the last is for all observations together.
        reasons: why observations failed, by their number.
        posterior: the fitted one, if there is one, of which pictures may be kept.
        notes: anything else worth keeping with the rows, as JSON-able data.
    """

    draws: dict[int, np.ndarray] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    posterior: Posterior | None = None
    notes: dict[str, Any] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str):
        """Add the time of the block to a stage."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


class AbstractMethodAdapter(abc.ABC):
    """A method as the benchmark sees it.

    Attributes:
        sequential: whether it simulates for one observation, so that every observation is a run of its own; otherwise
            one run serves all observations.
        side_by_side: whether runs of it may be threads of one process; large programs of theirs are then computed at
            once.
    """

    sequential: ClassVar[bool] = False
    side_by_side: ClassVar[bool] = False

    def check(self) -> None:  # noqa: B027  # most methods need nothing that might be missing
        """Raise an `InputError` if something that the method needs is not installed; called before a sweep begins.

        A method that fails at a task is a result; a method that is not there is not.
        """

    @abc.abstractmethod
    def infer(
        self, task: Task, *, budget: int, seed: int, observations: Mapping[int, np.ndarray], draws: int
    ) -> Outcome:
        """Simulate, fit, and draw.

        Args:
            task: prior, simulator and dimensions; its exact posterior is not to be touched.
            budget: number of simulations.
            seed: of everything random.
            observations: x_o by number; one of them if the method is sequential.
            draws: posterior draws wanted for each.
        """


def prior_simulations(task: Task, *, budget: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (theta, x), the same for every amortised method with this seed."""
    theta = task.prior.sample(budget, seed=seed)
    return theta, np.asarray(task.simulate(theta, seed + SIMULATION_SEED))


@dataclass(frozen=True)
class Amortised(AbstractMethodAdapter):
    """A method that fits once to prior simulations and then draws for any observation.

    Args:
        build: from a task to something with `fit((theta, x), seed=...)` that returns a `Posterior`.
        change: turns the fitted posterior into the one to draw from.
        needs: raises an error if a package is missing.
    """

    build: Callable[[Task], Any]
    change: Callable[[Posterior], Posterior] = lambda posterior: posterior
    needs: Callable[[], None] = lambda: None
    side_by_side: ClassVar[bool] = True

    def check(self):
        """Ask what was given as `needs`."""
        self.needs()

    def infer(self, task, *, budget, seed, observations, draws):
        """Fit once, then draw for all observations in one call."""
        outcome = Outcome()
        with outcome.stage("simulate"):
            theta, x = prior_simulations(task, budget=budget, seed=seed)
        with outcome.stage("train"):
            outcome.posterior = self.change(self.build(task).fit((theta, x), seed=seed, on_metrics=_last_of(outcome)))
        with outcome.stage("infer"):
            draw_all(outcome.posterior, observations, draws, seed=seed, outcome=outcome)
        return outcome


@dataclass(frozen=True)
class Sequential(AbstractMethodAdapter):
    """A method that simulates in rounds around one observation.

    Args:
        build: from a task and a simulator to something with `begin` and `run_rounds`, as `unle.SUNLE` has them.
        rounds: of simulations.
        needs: raises an error if a package is missing.
    """

    build: Callable[[Task, Any], Any]
    rounds: int = 10
    needs: Callable[[], None] = lambda: None
    sequential: ClassVar[bool] = True

    def check(self):
        """Ask what was given as `needs`."""
        self.needs()

    def infer(self, task, *, budget, seed, observations, draws):
        """Run the rounds for each observation."""
        outcome = Outcome()
        # On an accelerator the simulator runs there; elsewhere in this process, batched, since processes are busy.
        simulator = task.simulator_here if jax.default_backend() != "cpu" else batched_task(task)
        for number, x_o in observations.items():
            method = self.build(task, simulator)

            def simulate(theta, number_of_round):
                with outcome.stage("simulate"):
                    return simulate_at(simulator, theta, seed=seed, round=number_of_round)

            with outcome.stage("train"):
                state = method.begin(x_o, budget=budget, rounds=self.rounds, seed=seed)
                run = method.run_rounds(state, simulate, on_metrics=_last_of(outcome))
            outcome.posterior = run.posterior
            with outcome.stage("infer"):
                draw_all(run.posterior, {number: x_o}, draws, seed=seed, outcome=outcome)
        outcome.seconds["train"] -= outcome.seconds.get("simulate", 0.0)  # which was counted inside
        return outcome


class SequentialTogether(Sequential):
    """One whose rounds have the same shapes for all observations and seeds, so that they may run as one program."""

    side_by_side: ClassVar[bool] = True


def batched_task(task: Task) -> Any:
    """Return a task's simulator of many rows as `unle.simulate` takes it."""
    return batched(lambda theta, rng: task.simulate_rows(theta, rng))


def draw_all(
    posterior: Posterior, observations: Mapping[int, np.ndarray], draws: int, *, seed: int, outcome: Outcome
) -> None:
    """Draw for all observations at once; one by one if that fails, so that one of them does not spoil the others."""
    try:
        many = posterior.sample_many(list(observations.values()), draws, seed=seed)
        outcome.draws |= {i: np.asarray(d)[:draws] for i, d in zip(observations, many, strict=True)}
    except Exception as error:  # noqa: BLE001  # any failure of a method is a result of the benchmark
        for i, x_o in observations.items():
            if len(observations) == 1:
                outcome.reasons[i] = reason_of(error)
                return
            draw_all(posterior, {i: x_o}, draws, seed=seed, outcome=outcome)


def reason_of(error: BaseException) -> str:
    """Return an error as one short line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def _last_of(outcome: Outcome) -> Callable[..., None]:
    """Keep the summary of a fit with the rows."""

    def on_metrics(**values: Any) -> None:
        if values.get("stage") == "fitted":
            kept = {k: v for k, v in values.items() if isinstance(v, str | int | float | bool) and k != "stage"}
            outcome.notes["fit"] = kept

    return on_metrics


class FromPrior(AbstractMethodAdapter):
    """Draws from the prior, whatever was observed: the worst that an honest method can do."""

    def infer(self, task, *, budget, seed, observations, draws):
        """Draw from the prior."""
        outcome = Outcome()
        with outcome.stage("infer"):
            outcome.draws = {i: task.prior.sample(draws, seed=seed + i) for i in observations}
        return outcome


class Exact(AbstractMethodAdapter):
    """Draws from the exact posterior: what a perfect method scores."""

    def infer(self, task, *, budget, seed, observations, draws):
        """Draw from the exact posterior."""
        outcome = Outcome()
        with outcome.stage("infer"):
            # Not the seed of the references that the library makes for itself.
            outcome.draws = {i: task.reference(x_o, draws, seed=seed + 100 + i) for i, x_o in observations.items()}
        return outcome
