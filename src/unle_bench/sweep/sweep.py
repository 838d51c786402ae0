"""Tasks x methods x budgets x seeds x observations: what is to be done, and what is done already.

A sweep is cut into jobs.  A job of an amortised method fits once and serves all observations that lack a row; one of a
sequential method serves one observation.  Jobs that differ in their seed alone may run as a team, side by side in one
program.  Every row is written as soon as it is scored.
"""

import itertools
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from unle.errors import InputError, UnleWarning
from unle.progress import silence
from unle.store import versions
from unle_bench.methods.method_adapter import AbstractMethodAdapter, Outcome, reason_of
from unle_bench.methods.registry import Registry
from unle_bench.results.results_store import OK, Cell, ResultsStore
from unle_bench.sweep.batched_runs import run_together
from unle_bench.sweep.origin import machine, origin
from unle_bench.sweep.pictures import pictures
from unle_bench.sweep.scoring import FAILED, Scorer, problem_with
from unle_bench.tasks.official import N_OBSERVATIONS
from unle_bench.tasks.task import Task

OnRow = Callable[[Cell, str, dict[str, float]], None]


@dataclass(frozen=True)
class Sweep:
    """What to run.

    Args:
        tasks: names.
        methods: names.
        budgets: numbers of simulations.
        seeds: of whole runs.
        observations: numbers, 1 to 10; tasks with one observation of their own take the first.
        scorer: how draws are scored.
        extra: Python files with tasks or methods of one's own.
    """

    tasks: tuple[str, ...]
    methods: tuple[str, ...]
    budgets: tuple[int, ...] = (1000,)
    seeds: tuple[int, ...] = (0,)
    observations: tuple[int, ...] = tuple(range(1, 11))
    scorer: Scorer = Scorer()
    extra: tuple[str, ...] = ()

    def __post_init__(self):
        for name in ("tasks", "methods", "budgets", "seeds", "observations"):
            if not getattr(self, name):
                raise InputError(f"expected at least one of the {name}; got none.")
        registry = self.registry()
        for name in self.methods:
            registry.method(name)
        unknown = [name for name in self.tasks if not registry.task(name).has_reference]
        if unknown:
            raise InputError(
                f"expected tasks whose posterior is known, to score against; that of {', '.join(unknown)} is not; "
                "try `unle run` and `unle check`."
            )
        if min(self.budgets) < 1:
            raise InputError(f"expected budgets of at least one simulation; got {min(self.budgets)}.")
        beyond = [i for i in self.observations if not 1 <= i <= N_OBSERVATIONS]
        if beyond:
            raise InputError(f"expected observations from 1 to {N_OBSERVATIONS}; got {', '.join(map(str, beyond))}.")

    def registry(self) -> Registry:
        """Return the tasks and methods by name."""
        return Registry.with_files(self.extra)

    def cells(self) -> list[Cell]:
        """Return every row that the sweep will have."""
        keys = itertools.product(self.tasks, self.methods, self.budgets, self.seeds)
        return [Cell(*key, i) for key in keys for i in self._observations(key[0])]

    def jobs(self, finished: Iterable[Cell]) -> list["Job"]:
        """Return what is left to do, cheap budgets first."""
        registry, done = self.registry(), set(finished)
        jobs = []
        for budget, task, method, seed in itertools.product(sorted(self.budgets), self.tasks, self.methods, self.seeds):
            left = [i for i in self._observations(task) if Cell(task, method, budget, seed, i) not in done]
            groups = [[i] for i in left] if registry.method(method).sequential else [left] if left else []
            jobs += [Job(task, method, budget, seed, tuple(group)) for group in groups]
        return jobs

    def teams(self, finished: Iterable[Cell], size: int) -> list["Team"]:
        """Return what is left to do, in teams of at most this size of jobs that may run side by side."""
        jobs, alike = self.jobs(finished), {}
        for job in jobs:
            # A sequential run is one of a single observation, whichever it is.
            which = len(job.observations) if self.registry().method(job.method).sequential else job.observations
            alike.setdefault((job.task, job.method, job.budget, which), []).append(job)
        teams = []
        for group in alike.values():
            most = size if self.registry().method(group[0].method).side_by_side else 1
            count = -(-len(group) // most)
            teams += [tuple(group[k::count]) for k in range(count)]  # of nearly equal size: 3 and 3, not 5 and 1
        return sorted(teams, key=lambda team: jobs.index(team[0]))

    def check(self, finished: Iterable[Cell]) -> None:
        """Raise an `InputError` if something is not installed that a method which is left to do needs."""
        for name in dict.fromkeys(job.method for job in self.jobs(finished)):
            self.registry().method(name).check()

    def pictured(self, cell: Cell) -> bool:
        """Return whether draws and densities of a row are kept: of one observation and seed only."""
        return cell.seed == self.seeds[0] and cell.observation == self._observations(cell.task)[0]

    def _observations(self, task: str) -> tuple[int, ...]:
        return self.observations[:1] if self.registry().task(task).own else self.observations


@dataclass(frozen=True)
class Job:
    """One run of one method."""

    task: str
    method: str
    budget: int
    seed: int
    observations: tuple[int, ...]

    def cells(self) -> list[Cell]:
        """Return its rows."""
        return [Cell(self.task, self.method, self.budget, self.seed, i) for i in self.observations]

    def __str__(self) -> str:
        return f"{self.task}/{self.method}/{self.budget}/{self.seed}/{','.join(map(str, self.observations))}"


Team = tuple[Job, ...]  # that differ in seeds alone, or in observations too, and run side by side in one program


# (task, method, budget, jobs, observations) that this process has run: later runs find programs compiled
_SEEN: set[tuple[str, str, int, int, int]] = set()


def run_team(team: Team, sweep: Sweep, path: Path, on_row: OnRow | None = None, *, workers: int = 1) -> None:
    """Run jobs and write their rows; whatever goes wrong in the method becomes rows with C2ST 1 and the reason.

    Args:
        team: the runs.
        sweep: that they belong to.
        path: of the results file.
        on_row: called for every row.
        workers: processes that run teams side by side, to be kept with the times.
    """
    registry = sweep.registry()
    task, method = registry.task(team[0].task), registry.method(team[0].method)
    kind = (team[0].task, team[0].method, team[0].budget, len(team), len(team[0].observations))
    cold = kind not in _SEEN
    _SEEN.add(kind)
    with ResultsStore(path) as results:
        results.begin(os.getpid(), map(str, team))
        with silence():  # the table shows how far the sweep is
            outcomes = run_together([partial(_outcome, job, task, method, sweep.scorer.draws) for job in team])
        for job, outcome in zip(team, outcomes, strict=True):
            if len(team) > 1:
                outcome.seconds.clear()  # a run that waits for others has no time of its own
            conditions = _conditions(job, task, sweep.scorer, cold=cold) | {"workers": workers, "team": len(team)}
            _write_rows(job, outcome, results, sweep, task, conditions | outcome.notes, on_row)
        results.end(os.getpid())


def _write_rows(
    job: Job,
    outcome: Outcome,
    results: ResultsStore,
    sweep: Sweep,
    task: Task,
    conditions: dict[str, Any],
    on_row: OnRow | None,
) -> None:
    """Score the draws of a job and write its rows, each as soon as it is scored."""
    shared = max(1, len(job.observations))
    seconds = {f"{name}_s": value for name, value in outcome.seconds.items()}
    if "infer_s" in seconds:
        seconds["infer_s"] /= shared

    def write(cell: Cell, reason: str, numbers: dict[str, float]) -> None:
        if results.add(cell, reason, numbers | seconds, conditions) and on_row is not None:
            on_row(cell, reason, numbers)

    good: dict[int, np.ndarray] = {}
    for cell in job.cells():
        i = cell.observation
        problem = outcome.reasons.get(i) or problem_with(outcome.draws.get(i), sweep.scorer.draws, task.dim_theta)
        if problem is None:
            good[i] = outcome.draws[i]
        else:
            write(cell, problem, {"c2st": FAILED})
    cells = {cell.observation: cell for cell in job.cells()}
    _keep_pictures(results, sweep, task, outcome, {cells[i]: good[i] for i in good})
    start = time.perf_counter()
    for i, reason, numbers in _scored(sweep.scorer, task, good):
        write(cells[i], reason, numbers | {"score_s": time.perf_counter() - start})
        start = time.perf_counter()


def fail_job(job: Job, sweep: Sweep, results: ResultsStore, reason: str) -> None:
    """Write rows of failure for what a job has not finished."""
    task = sweep.registry().task(job.task)
    for cell in job.cells():
        results.add(cell, reason, {"c2st": FAILED}, _conditions(job, task, sweep.scorer, cold=True))


def _outcome(job: Job, task: Task, method: AbstractMethodAdapter, draws: int) -> Outcome:
    observations = {i: task.observation(i) for i in job.observations}
    try:
        return method.infer(task, budget=job.budget, seed=job.seed, observations=observations, draws=draws)
    except Exception as error:  # noqa: BLE001  # a method may fail in any way; the sweep goes on
        return Outcome(reasons=dict.fromkeys(job.observations, reason_of(error)))


def _scored(scorer: Scorer, task: Task, draws: Mapping[int, np.ndarray]) -> Iterator[tuple[int, str, dict[str, float]]]:
    """Yield how every observation ended, and its numbers; one that cannot be scored does not spoil the others."""
    left = dict(draws)
    try:
        for i, numbers in scorer.scores(task, draws):
            del left[i]
            yield i, OK, numbers
    except Exception as error:  # noqa: BLE001  # hours of other rows may follow
        for i in left:
            if len(draws) == 1:
                yield i, f"not scored: {reason_of(error)}", {"c2st": FAILED}
            else:
                yield from _scored(scorer, task, {i: left[i]})


def _keep_pictures(results: ResultsStore, sweep: Sweep, task: Task, outcome: Outcome, draws: dict) -> None:
    for cell, values in draws.items():
        if sweep.pictured(cell):
            try:
                kept = pictures(task, outcome.posterior, cell.observation, values)
            except Exception as error:  # noqa: BLE001  # a picture less; the rows are what counts
                warnings.warn(f"no pictures of {cell} are kept: {reason_of(error)}", UnleWarning, stacklevel=2)
                continue
            for name, arrays in kept.items():
                results.keep(cell, name, arrays)


def _conditions(job: Job, task: Task, scorer: Scorer, *, cold: bool) -> dict[str, Any]:
    import jax

    return {
        "observations": task.observation_source,
        "draws": scorer.draws,
        "classifier": scorer.classifier,
        "device": jax.devices()[0].device_kind,
        "machine": machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "cold": cold,
        "together": len(job.observations),
        "versions": versions(),
        **origin(),
    }
