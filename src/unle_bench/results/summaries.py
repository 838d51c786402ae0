"""Rows of a benchmark as means, how far these can be trusted, and where the time of runs went.

Rows of one seed share a fit, and the observations are a fixed set, so rows are no independent sample of anything.  With
several seeds the uncertainty is that of per-seed means: a standard error.  With one seed there is none to be had; what
can be told is how much observations differ, a standard deviation, which is another thing and has another name.

Times of different machines are never pooled, nor those of drawing for different numbers of observations at once.  Runs
that found their programs compiled count alone where there are some, and runs whose times are not known do not count.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from unle_bench import TASKS
from unle_bench.results.results_store import OK
from unle_bench.tasks.official import N_OBSERVATIONS

CONVENTION = 10_000  # draws of each posterior in all published numbers
NAN = float("nan")


@dataclass(frozen=True)
class Summary:
    """A method on a task with a budget, over seeds and observations.

    Attributes:
        mean: of a number over all rows that have it.
        error: standard error over the means of the seeds; NaN with one seed, or where seeds saw other observations.
        deviation: standard deviation over observations where there is no standard error; NaN with one observation.
        measuring: root mean square of the error that finite draws leave in one row's number; NaN if not known.
        seeds: how many.
        observations: how many different ones.
        rows: how many.
        failures: how many of them failed, and count with C2ST 1.
        partial: whether observations of the task are missing.
    """

    mean: float
    error: float
    deviation: float
    measuring: float
    seeds: int
    observations: int
    rows: int
    failures: int
    partial: bool


def summaries(rows: Iterable[Mapping[str, Any]], number: str = "c2st") -> dict[tuple[str, str, int], Summary]:
    """Return the summary of every (task, method, budget).

    Example:
        >>> rows = [{"task": "sir", "method": "nle", "budget": 1000, "seed": s, "observation": i, "outcome": "ok",
        ...     "c2st": 0.6 + 0.1 * s + 0.01 * i} for s in (0, 1) for i in (1, 2)]
        >>> one = summaries(rows)["sir", "nle", 1000]
        >>> round(one.mean, 3), round(one.error, 3), one.deviation, one.partial
        (0.665, 0.05, nan, True)
    """
    groups: dict[tuple[str, str, int], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["task"], row["method"], row["budget"]), []).append(row)
    return {key: _summary(group, number) for key, group in groups.items()}


def _summary(group: Sequence[Mapping[str, Any]], number: str) -> Summary:
    known = [row for row in group if row[number] is not None]
    error = _over_seeds(known, number)
    seen = {row["observation"] for row in group}
    return Summary(
        mean=float(np.mean([row[number] for row in known])) if known else NAN,
        error=error,
        deviation=_over_observations(known, number) if np.isnan(error) else NAN,
        measuring=_measuring(known, number),
        seeds=len({row["seed"] for row in group}),
        observations=len(seen),
        rows=len(group),
        failures=sum(row["outcome"] != OK for row in group),
        partial=len(seen) < observations_of(group[0]["task"]),
    )


def _over_seeds(rows: Sequence[Mapping[str, Any]], number: str) -> float:
    """Return the standard error over per-seed means; NaN unless several seeds saw the same observations."""
    by_seed: dict[int, dict[int, float]] = {}
    for row in rows:
        by_seed.setdefault(row["seed"], {})[row["observation"]] = row[number]
    if len(by_seed) < 2 or len({frozenset(values) for values in by_seed.values()}) > 1:
        return NAN
    means = [np.mean(list(values.values())) for values in by_seed.values()]
    return float(np.std(means, ddof=1) / np.sqrt(len(means)))


def _over_observations(rows: Sequence[Mapping[str, Any]], number: str) -> float:
    by_observation: dict[int, list[float]] = {}
    for row in rows:
        by_observation.setdefault(row["observation"], []).append(row[number])
    means = [np.mean(values) for values in by_observation.values()]
    return float(np.std(means, ddof=1)) if len(means) > 1 else NAN


def _measuring(rows: Sequence[Mapping[str, Any]], number: str) -> float:
    errors = [row[f"{number}_error"] for row in rows if row.get(f"{number}_error") is not None]
    return float(np.sqrt(np.mean(np.square(errors)))) if errors else NAN


def observations_of(task: str) -> int:
    """Return how many observations a complete sweep of a task has: ten, or the one that a toy fixes for itself."""
    return 1 if task in TASKS and TASKS[task].own else N_OBSERVATIONS


def comparable(rows: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether rows may stand beside published numbers: C2ST depends on the number of draws."""
    return {row["conditions"].get("draws") for row in rows} == {CONVENTION}


def sources(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return whose observations and reference draws they are, as text, with the tasks where that differs."""
    tasks: dict[str, set[str]] = {}
    for row in rows:
        tasks.setdefault(row["conditions"].get("observations", "unknown"), set()).add(row["task"])
    if len(tasks) == 1:
        return next(iter(tasks))
    return "; ".join(f"{source} ({', '.join(ordered(names, list(TASKS)))})" for source, names in sorted(tasks.items()))


def ordered(keys: Iterable[str], order: Sequence[str]) -> list[str]:
    """Return names in the given order, unknown ones last."""
    return sorted(set(keys), key=lambda name: (order.index(name) if name in order else len(order), name))


STAGES = ("simulate", "train", "infer")


class Run(NamedTuple):
    """Runs whose times may be averaged."""

    task: str
    budget: int
    method: str
    machine: str
    together: int  # observations drawn in one call


class Times(NamedTuple):
    """Mean seconds of them.

    Attributes:
        seconds: by stage; "infer" for one observation, its share of the call.
        compiling: whether the time of compiling programs is included.
        rows: how many count.
    """

    seconds: dict[str, float]
    compiling: bool
    rows: int


def timings(rows: Iterable[Mapping[str, Any]]) -> dict[Run, Times]:
    """Return the mean times of all runs that did not fail, in the order of tasks, budgets and methods."""
    groups: dict[Run, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["outcome"] == OK and any(row[f"{stage}_s"] is not None for stage in STAGES):
            together = row["conditions"].get("together", 1)
            run = Run(row["task"], row["budget"], row["method"], machine_of(row), together)
            groups.setdefault(run, []).append(row)
    places = {name: k for k, name in enumerate(TASKS)}
    found = {}
    for run in sorted(groups, key=lambda run: (places.get(run.task, len(places)), *run)):
        warm = [row for row in groups[run] if not row["conditions"].get("cold", True)]
        used = warm or groups[run]
        seconds = {stage: _mean([row[f"{stage}_s"] for row in used]) for stage in STAGES}
        found[run] = Times(seconds, not warm, len(used))
    return found


def _mean(seconds: Iterable[float | None]) -> float:
    """Return the mean of the times that are known; a stage that no run has takes none."""
    known = [value for value in seconds if value is not None]
    return float(np.mean(known)) if known else 0.0


def machine_of(row: Mapping[str, Any]) -> str:
    """Return the machine of a row, with a processor's cores, or by how many processes an accelerator was shared."""
    conditions = row["conditions"]
    name, cores = conditions.get("machine") or conditions.get("device", "unknown"), conditions.get("cores")
    if conditions.get("device") != "cpu":
        workers = conditions.get("workers") or 1
        return f"{name}, shared by {workers}" if workers > 1 else name
    if not cores:
        return name
    return f"{name}, {cores} core{'s' if cores > 1 else ''}"
