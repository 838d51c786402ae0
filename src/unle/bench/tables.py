"""Tables of results: our means with standard errors, and beside them what others have published."""

import csv
import io
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


def details(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return heads and cells with all numbers: one line per task, budget and method."""
    numbers = ("c2st", "mmd", "energy_distance", "mean_error", "energy_score", "simulate_s", "train_s", "infer_s")
    by_number = {name: summaries(rows, name) for name in numbers}
    found = by_number["c2st"]
    heads = ["task", "budget", "method", "C2ST", "MMD²", "energy distance", "mean error", "energy score"]
    heads += ["simulate s", "train s", "infer s"]
    table = []
    for key in sorted(found, key=lambda k: (list(TASKS).index(k[0]) if k[0] in TASKS else 99, k[2], k[1])):
        task, method, budget = key
        table.append([task, f"{budget:,}", method, *(_number(by_number[name][key].mean) for name in numbers)])
    return heads, table


def _number(value: float) -> str:
    return NONE if not np.isfinite(value) else f"{value:.4f}" if abs(value) < 10 else f"{value:.1f}"


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return every row, with its conditions in one column."""
    buffer = io.StringIO()
    if rows:
        writer = csv.DictWriter(buffer, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return buffer.getvalue()


def as_markdown(heads: Sequence[str], table: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join([*lines, *("| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in table)])
