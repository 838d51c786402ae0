"""Where the time of runs went, by one rule for tables and figures.

Times of different machines are never pooled, nor those of drawing for different numbers of observations at once.  Runs
that found their programs compiled count alone where there are some, and runs whose times are not known do not count.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from unle_bench import TASKS
from unle_bench.results_store import OK

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
