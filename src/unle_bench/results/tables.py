"""Tables of results: our means with what is known of their errors, and beside them what others have published."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unle_bench import TASKS
from unle_bench.results.published import Published, best, number_of
from unle_bench.results.summaries import Summary, comparable, ordered, sources, summaries, timings

# our method -> what it is compared with
COUNTERPARTS = {
    "aunle": "AUNLE",
    "aunle-paper": "AUNLE",
    "aunle-paper-smc": "AUNLE",
    "sunle": "SUNLE",
    "sunle-paper": "SUNLE",
    "sunle-paper-divi": "SUNLE",
    "sunle-paper-online": "SUNLE",
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
PARTIAL = "†"
NOTATION = (
    "In brackets: seeds × observations. ±: standard error over the means of seeds. sd: standard deviation over "
    "observations, where there is one seed and so no standard error. "
    f"{PARTIAL}: fewer than the task's observations, ten as a rule. Failures count with 1."
)
NOTATION_PUBLISHED = "Published ±: standard deviation over the published runs, by the root of their number."


def comparison(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return heads and cells: one line per task and method, one column per budget, then what was published.

    Published numbers are left out where ours are of another number of draws.
    """
    found = summaries(rows)
    budgets = sorted({budget for _, _, budget in found})
    table = []
    for task in ordered((task for task, _, _ in found), list(TASKS)):
        methods = ordered((method for t, method, _ in found if t == task), list(COUNTERPARTS))
        for method in methods:
            table.append([task, method, *(_cell(found.get((task, method, budget))) for budget in budgets)])
        if not comparable(rows):
            continue
        for name in dict.fromkeys(COUNTERPARTS[method] for method in methods if method in COUNTERPARTS):
            table += _line([task, f"published {name}"], [number_of(name, task, budget) for budget in budgets])
        for kind in ("amortised", "sequential"):
            tops = [best(task, budget, sequential=kind == "sequential") for budget in budgets]
            table += _line([task, f"best pub. {kind}"], tops, named=True)
    return ["task", "method", *(f"{budget:,}" for budget in budgets)], table


def _line(heads: list[str], numbers: Sequence[Published | None], *, named: bool = False) -> list[list[str]]:
    """Return one line of published numbers, or none if there are none."""
    return [[*heads, *(_published(one, named=named) for one in numbers)]] if any(numbers) else []


def under(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return what has to be known to read a table of C2ST: its signs, and what draws were compared with."""
    published = NOTATION_PUBLISHED if comparable(rows) else "Published numbers are of 10,000 draws and not shown."
    return f"{NOTATION}\n{published}\nObservations and references: {sources(rows)}."


def draws_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the number of draws behind each C2ST."""
    numbers = {row["conditions"].get("draws") for row in rows}
    return ", ".join(f"{number:,}" if number else "unknown" for number in sorted(numbers, key=lambda n: n or 0))


def _cell(summary: Summary | None) -> str:
    if summary is None:
        return NONE
    failures = f", {summary.failures} failed" if summary.failures else ""
    balanced = summary.rows == summary.seeds * summary.observations
    count = f"{summary.seeds}×{summary.observations}" if balanced else f"{summary.rows} rows"
    return f"{_with_spread(summary, 3)} ({count}{failures}){PARTIAL if summary.partial else ''}"


def _with_spread(summary: Summary, digits: int) -> str:
    """Return a mean with its standard error or its standard deviation, whichever there is, or alone."""
    if np.isfinite(summary.error):
        return f"{summary.mean:.{digits}f} ± {summary.error:.{digits}f}"
    if np.isfinite(summary.deviation):
        return f"{summary.mean:.{digits}f} sd {summary.deviation:.{digits}f}"
    return f"{summary.mean:.{digits}f}"


def _published(one: Published | None, *, named: bool = False) -> str:
    if one is None:
        return NONE
    error = f" ± {one.error:.3f}" if one.error is not None else ""
    return f"{one.c2st:.3f}{error}{f' {one.method}' if named else ''}"


def of_task(rows: Sequence[Mapping[str, Any]], task: str) -> tuple[list[str], list[list[str]]]:
    """Return heads and cells of one task: one line per method, and for each budget ours and what was published."""
    found = {key[1:]: one for key, one in summaries(row for row in rows if row["task"] == task).items()}
    budgets = sorted({budget for _, budget in found})
    beside = comparable(rows)
    heads = ["method", *(head for budget in budgets for head in (f"{budget:,}", "published")[: 1 + beside])]
    table = []
    for method in ordered((method for method, _ in found), list(COUNTERPARTS)):
        cells = []
        for budget in budgets:
            theirs = _published(number_of(COUNTERPARTS.get(method, ""), task, budget))
            cells += [_cell(found.get((method, budget))), theirs][: 1 + beside]
        table.append([f"`{method}`", *cells])
    for kind in ("amortised", "sequential") if beside else ():
        tops = [best(task, budget, sequential=kind == "sequential") for budget in budgets]
        if any(tops):
            cells = [text for top in tops for text in ("", _published(top, named=True))]
            table.append([f"best published, {kind}", *cells])
    return heads, table


def stages(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return heads and cells with seconds: one line per task, budget, method, machine and number drawn together."""
    heads = ["task", "budget", "method", "simulate", "train", "draw, per observation", "drawn together"]
    table = [
        [run.task, f"{run.budget:,}", f"`{run.method}`", *map(_seconds, times.seconds.values()), str(run.together)]
        + ["yes" if times.compiling else "no", run.machine]
        for run, times in timings(rows).items()
    ]
    return [*heads, "compiling", "machine"], table


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
        mark = PARTIAL if found[key].partial else ""
        table.append([task, f"{budget:,}", f"`{method}`{mark}", *(_number(by_number[name][key]) for name in numbers)])
    return heads, table


def _number(summary: Summary) -> str:
    if not np.isfinite(summary.mean):
        return NONE
    digits = 4 if abs(summary.mean) < 10 else 1
    measuring = f" [{summary.measuring:.{digits}f}]" if np.isfinite(summary.measuring) else ""
    return _with_spread(summary, digits) + measuring


def as_markdown(heads: Sequence[str], table: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join([*lines, *("| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in table)])
