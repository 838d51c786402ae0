"""The results page: everything that a results file holds, as Markdown."""

from collections.abc import Mapping, Sequence
from typing import Any

from unle.bench.published import SOURCES
from unle.bench.tables import as_markdown, comparison, details
from unle.store.results import KEY, OK

INTRODUCTION = """\
Written by `unle bench --show --results FILE --write docs/results.md` from stored results; do not edit. C2ST, mean ±
standard error over seeds and observations (number of them): 0.5 is a posterior that a classifier cannot tell from the
exact one, 1 is one that it always can. Runs that failed count with 1. How to read it: [Benchmark](benchmark.md)."""
OTHERS = """\
MMD (squared, Gaussian kernel of the reference's median distance), energy distance (in standard deviations of the
reference), error of the posterior mean (likewise) and energy score of the true parameters; means over the rows that
did not fail. Seconds of one run and one observation; where programs had to be compiled first, that is included."""


def results_page(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the comparison, all numbers, the failures and the sources."""
    if not rows:
        return "# Results\n\nNo results yet. Make some with `unle bench`.\n"
    conditions = [row["conditions"] for row in rows]
    how = (
        f"{_kinds(conditions, 'draws')} draws per posterior; classifier: {_kinds(conditions, 'classifier')};"
        f" observations and references: {_kinds(conditions, 'observations')}; devices: {_kinds(conditions, 'device')}."
        " *Best* is the best published number of its kind, whoever holds it."
    )
    parts = ["# Results", INTRODUCTION, as_markdown(*comparison(rows)), how]
    parts += ["## Other measures", OTHERS, as_markdown(*details(rows))]
    failures = [[*(str(row[name]) for name in KEY), row["outcome"]] for row in rows if row["outcome"] != OK]
    if failures:
        parts += ["## Failures", as_markdown([*KEY, "reason"], failures)]
    sources = "\n".join(f"- `{key}`: {what}; {where}" for key, (what, where) in SOURCES.items())
    return "\n\n".join([*parts, "## Sources of published numbers", sources]) + "\n"


def _kinds(conditions: Sequence[Mapping[str, Any]], name: str) -> str:
    return ", ".join(sorted({str(one.get(name)) for one in conditions}))
