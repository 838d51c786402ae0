"""Tables of results: our means with standard errors, and beside them what others have published."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unle.bench import TASKS
from unle.bench.published import best, number_of
from unle.store.results import OK

# our method -> what it is compared with
COUNTERPARTS = {
    "aunle": "AUNLE",
    "sunle": "SUNLE",
    "nle": "NLE",
    "nle-spline": "NLE-NSF",
    "snle": "SNLE",
    "snle-spline": "SNLE-NSF",
    "smnle-sm": "SMNLE-SM",
    "smnle-ssm": "SMNLE-SSM",
    "sbi-nle": "NLE",
    "sbi-snle": "SNLE",
    "sbi-npe": "NPE",
}
NONE = "–"


@dataclass(frozen=True)
class Summary:
    """A method on a task with a budget, over seeds and observations.

    Attributes:
        mean: of a number over all rows.
        error: its standard error; rows of one seed share a fit, so this is a lower bound when seeds are few.
        rows: how many.
        failures: how many of them failed, and count with C2ST 1.
        seconds: mean of simulate, train and infer together.
    """

    mean: float
    error: float
    rows: int
    failures: int
    seconds: float


def summaries(rows: Iterable[Mapping[str, Any]], number: str = "c2st") -> dict[tuple[str, str, int], Summary]:
    """Return the summary of every (task, method, budget)."""
    groups: dict[tuple[str, str, int], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["task"], row["method"], row["budget"]), []).append(row)
    return {key: _summary(group, number) for key, group in groups.items()}


def _summary(group: Sequence[Mapping[str, Any]], number: str) -> Summary:
    values = np.array([row[number] for row in group if row[number] is not None], dtype=float)
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
    seconds = [sum(row[f"{stage}_s"] or 0.0 for stage in ("simulate", "train", "infer")) for row in group]
    mean = float(values.mean()) if len(values) else float("nan")
    return Summary(mean, float(error), len(group), sum(row["outcome"] != OK for row in group), float(np.mean(seconds)))


def ordered(keys: Iterable[str], order: Sequence[str]) -> list[str]:
    """Return names in the given order, unknown ones last."""
    return sorted(set(keys), key=lambda name: (order.index(name) if name in order else len(order), name))


def comparison(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return heads and cells: one line per task and budget, our methods, then what was published."""
    found = summaries(rows)
    methods = ordered((method for _, method, _ in found), list(COUNTERPARTS))
    others = list(dict.fromkeys(COUNTERPARTS[m] for m in methods if m in COUNTERPARTS))
    heads = [
        "task",
        "budget",
        *methods,
        *(f"{name} (published)" for name in others),
        "best amortised",
        "best sequential",
    ]
    table = []
    for task in ordered((task for task, _, _ in found), list(TASKS)):
        for budget in sorted({b for t, _, b in found if t == task}):
            ours = [_cell(found.get((task, method, budget))) for method in methods]
            theirs = [_published(number_of(name, task, budget)) for name in others]
            tops = [_best(best(task, budget, sequential=kind)) for kind in (False, True)]
            table.append([task, f"{budget:,}", *ours, *theirs, *tops])
    return heads, table


def _cell(summary: Summary | None) -> str:
    if summary is None:
        return NONE
    error = f" ± {summary.error:.3f}" if np.isfinite(summary.error) else ""
    failures = f", {summary.failures} failed" if summary.failures else ""
    return f"{summary.mean:.3f}{error} ({summary.rows}{failures})"


def _published(one: Any) -> str:
    return NONE if one is None else f"{one.c2st:.3f}"


def _best(one: Any) -> str:
    return NONE if one is None else f"{one.c2st:.3f} {one.method}"


def of_task(rows: Sequence[Mapping[str, Any]], task: str) -> tuple[list[str], list[list[str]]]:
    """Return heads and cells of one task: one line per method, and for each budget ours and what was published."""
    found = {key[1:]: one for key, one in summaries(row for row in rows if row["task"] == task).items()}
    budgets = sorted({budget for _, budget in found})
    heads = ["method", *(head for budget in budgets for head in (f"{budget:,}", "published"))]
    table = []
    for method in ordered((method for method, _ in found), list(COUNTERPARTS)):
        cells = [
            text
            for budget in budgets
            for text in (
                _cell(found.get((method, budget))),
                _published(number_of(COUNTERPARTS.get(method, ""), task, budget)),
            )
        ]
        table.append([f"`{method}`", *cells])
    for kind, sequential in (("best published, amortised", False), ("best published, sequential", True)):
        tops = [best(task, budget, sequential=sequential) for budget in budgets]
        if any(tops):
            cells = [text for top in tops for text in ("", NONE if top is None else f"{top.c2st:.3f} {top.method}")]
            table.append([kind, *cells])
    return heads, table


def stages(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return heads and cells with seconds: one line per task, budget, method and machine.

    Runs that found their programs compiled count alone where there are some; otherwise the line is marked.
    """
    groups: dict[tuple, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["outcome"] == OK:
            groups.setdefault((row["task"], row["budget"], row["method"], _machine(row)), []).append(row)
    table = []
    for key in sorted(groups, key=lambda k: (list(TASKS).index(k[0]) if k[0] in TASKS else 99, *k[1:])):
        warm = [row for row in groups[key] if not row["conditions"].get("cold", True)]
        used = warm or groups[key]
        means = [float(np.mean([row[f"{stage}_s"] or 0.0 for row in used])) for stage in ("simulate", "train", "infer")]
        task, budget, method, machine = key
        compiling = "no" if warm else "yes"
        table.append([task, f"{budget:,}", f"`{method}`", *map(_seconds, means), compiling, machine])
    heads = ["task", "budget", "method", "simulate", "train", "draw, per observation", "compiling", "machine"]
    return heads, table


def _machine(row: Mapping[str, Any]) -> str:
    conditions = row["conditions"]
    name, cores = conditions.get("machine") or conditions.get("device", "unknown"), conditions.get("cores")
    if conditions.get("device") != "cpu" or not cores:
        return name
    return f"{name}, {cores} core{'s' if cores > 1 else ''}"


def _seconds(value: float) -> str:
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def details(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return heads and cells with all numbers: one line per task, budget and method."""
    numbers = ("c2st", "mmd", "energy_distance", "mean_error", "energy_score")
    by_number = {name: summaries(rows, name) for name in numbers}
    found = by_number["c2st"]
    heads = ["task", "budget", "method", "C2ST", "MMD²", "energy distance", "mean error", "energy score"]
    table = []
    for key in sorted(found, key=lambda k: (list(TASKS).index(k[0]) if k[0] in TASKS else 99, k[2], k[1])):
        task, method, budget = key
        table.append([task, f"{budget:,}", method, *(_number(by_number[name][key].mean) for name in numbers)])
    return heads, table


def _number(value: float) -> str:
    return NONE if not np.isfinite(value) else f"{value:.4f}" if abs(value) < 10 else f"{value:.1f}"


def as_markdown(heads: Sequence[str], table: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join([*lines, *("| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in table)])
