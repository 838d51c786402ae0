"""The results page: everything that a file of results holds, as Markdown with figures and the commands that made it."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from unle.store import write_atomically
from unle_bench import TASKS
from unle_bench.paper.figures import Drawn, accuracy
from unle_bench.results.published import SOURCES
from unle_bench.results.results_csv import RowsAlone
from unle_bench.results.results_query import ResultsQuery
from unle_bench.results.results_store import KEY, OK
from unle_bench.results.summaries import comparable, ordered, sources
from unle_bench.results.tables import (
    COUNTERPARTS,
    NOTATION,
    NOTATION_PUBLISHED,
    as_markdown,
    details,
    draws_of,
    of_task,
    stages,
)

IMAGES = "images"  # folder beside the page
NOTHING = "# Results\n\nNo results yet. Make some with `unle bench`.\n"
INTRODUCTION = """\
Made by one command from stored results; do not edit.

```
unle bench --show --results {source} --write {page}
```

C2ST, mean over seeds and observations: 0.5 is a posterior that a classifier cannot tell from the exact one, 1 is one
that it always can. {notation} How to read all this: [Benchmark](benchmark.md)."""
PUBLISHED = f"""\
{NOTATION_PUBLISHED} These runs differ in their observations (in their seeds too for AUNLE and SUNLE): how much
observations differ is in that error, but not in ours."""
OTHER_DRAWS = "Published numbers are of 10,000 draws for each posterior; they are not shown beside others."
SCORE_MATCHING = """\
`smnle-sm` and `smnle-ssm` here sit on a fitted Gaussian base, unlike the published SMNLE; `gaussian`, an ensemble of
such bases without any energy, shows what the base does alone."""
TIMES = """\
Seconds of one run: simulating, training (all rounds of a sequential method) and drawing for one observation, which is
its share of one call for all that were *drawn together*; fewer of them share the costs of the call, so lines with
other numbers are not comparable there. *Compiling*: whether the time of compiling programs is included; where some
runs found them compiled, those count alone."""
OTHERS = """\
MMD (squared, Gaussian kernel of the reference's median distance), energy distance (in standard deviations of the
reference), error of the posterior mean (likewise) and energy score of the true parameters; means over the rows that
did not fail, but in C2ST failures count with 1. ± and sd as above. In brackets: how far the number of one row may be
off because its draws are finite, the root mean square over rows of their standard errors."""
COMMANDS = "These commands make the rows, in whatever order; what a results file holds already is not done again."


def results_page(
    rows: Sequence[Mapping[str, Any]],
    figures: Sequence[tuple[str, Drawn]] = (),
    *,
    source: str = "docs/results.csv",
    page: str = "docs/results.md",
) -> str:
    """Return the page.

    Args:
        rows: of a results file.
        figures: addresses of pictures, and the pictures.
        source: the results file, for the command that makes the page.
        page: its own path, likewise.
    """
    if not rows:
        return NOTHING
    parts = ["# Results", INTRODUCTION.format(source=source, page=page, notation=NOTATION)]
    parts += [PUBLISHED if comparable(rows) else OTHER_DRAWS]
    if any(row["method"].startswith("smnle") for row in rows):
        parts.append(SCORE_MATCHING)
    parts.append(_how(rows))
    parts += [f"![{drawn.alt}]({address})\n\n*{drawn.caption}*" for address, drawn in figures]
    for task in ordered((row["task"] for row in rows), list(TASKS)):
        parts += [f"## {task}", as_markdown(*of_task(rows, task))]
    failures = [[*(str(row[name]) for name in KEY), row["outcome"]] for row in rows if row["outcome"] != OK]
    parts += ["## Failures", f"{len(failures)} of {len(rows)} rows."]
    if failures:
        parts.append(as_markdown([*KEY, "reason"], failures))
    parts += ["## Time", TIMES, as_markdown(*stages(rows))]
    parts += ["## Other measures", OTHERS, as_markdown(*details(rows))]
    parts += ["## Commands", COMMANDS, "```\n" + "\n".join(reproduce(rows)) + "\n```"]
    sources = "\n".join(f"- `{key}`: {what}; {where}" for key, (what, where) in SOURCES.items())
    return "\n\n".join([*parts, "## Sources of published numbers", sources]) + "\n"


def write_results_page(rows: list[dict[str, Any]], path: Path, *, source: Path) -> None:
    """Write the page, and its pictures into a folder beside it."""
    figures = pictures_of(rows, path.stem)
    for address, drawn in figures:
        (path.parent / address).parent.mkdir(parents=True, exist_ok=True)
        drawn.figure.savefig(path.parent / address, dpi=150)
    write_atomically(path, results_page(rows, figures, source=source.as_posix(), page=path.as_posix()).encode())


def pictures_of(rows: list[dict[str, Any]], name: str) -> list[tuple[str, Drawn]]:
    """Return C2ST against the number of simulations, amortised and sequential methods apart, with addresses."""
    drawn = accuracy(ResultsQuery(RowsAlone(rows))).drawn
    return [(f"{IMAGES}/{name}-c2st-{k}.png", one) for k, one in enumerate(drawn, start=1)]


def _how(rows: Sequence[Mapping[str, Any]]) -> str:
    conditions = [row["conditions"] for row in rows]
    versions = [{"unle": c.get("versions", {}).get("unle", "not recorded")} for c in conditions]
    machines = [{"machine": c.get("machine") or c.get("device", "not recorded")} for c in conditions]
    return (
        f"{len(rows)} rows; {draws_of(rows)} draws per posterior; classifier:"
        f" {_kinds(conditions, 'classifier')}; observations and references: {sources(rows)};"
        f" machines: {_kinds(machines, 'machine')}; versions of unle: {_kinds(versions, 'unle')}."
    )


def _kinds(conditions: Sequence[Mapping[str, Any]], name: str) -> str:
    return ", ".join(sorted({str(one.get(name, "unknown")) for one in conditions}))


def reproduce(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return `unle bench` commands that make exactly these rows, few of them.

    Example:
        >>> keys = [(task, "nle", budget, 0, 1) for task in ("two_moons", "slcp") for budget in (1000, 10000)]
        >>> names = ("task", "method", "budget", "seed", "observation")
        >>> reproduce([dict(zip(names, key)) for key in keys])
        ['unle bench --tasks two_moons,slcp --methods nle --budgets 1000,10000 --seeds 0 --observations 1']
    """
    groups: dict[tuple, set] = {}
    for row in rows:
        groups.setdefault((row["method"], row["task"], row["budget"]), set()).add((row["seed"], row["observation"]))
    # Seeds with the same observations belong together; then what differs by one name only, one name at a time.
    runs = [
        (method, task, budget, seeds, seen)
        for (method, task, budget), pairs in groups.items()
        for seen, seeds in _inverse({s: tuple(sorted(o for t, o in pairs if t == s)) for s, _ in pairs}).items()
    ]
    for place in (2, 1, 0):  # budgets, tasks, methods
        merged: dict[tuple, list] = {}
        for run in runs:
            merged.setdefault((*run[:place], None, *run[place + 1 :]), []).append(run[place])
        runs = [(*key[:place], tuple(_in_order(names)), *key[place + 1 :]) for key, names in merged.items()]
    return [
        f"unle bench --tasks {','.join(tasks)} --methods {','.join(methods)} --budgets {','.join(map(str, budgets))}"
        f" --seeds {_numbers(seeds)} --observations {_numbers(seen)}"
        for methods, tasks, budgets, seeds, seen in runs
    ]


def _inverse(seen: Mapping[int, tuple]) -> dict[tuple, tuple]:
    found: dict[tuple, tuple] = {}
    for seed in sorted(seen):
        found[seen[seed]] = (*found.get(seen[seed], ()), seed)
    return found


def _in_order(names: Iterable[Any]) -> list[Any]:
    """Sort budgets by size, tasks and methods as tables have them."""
    names = set(names)
    return sorted(names) if all(isinstance(name, int) for name in names) else ordered(names, [*TASKS, *COUNTERPARTS])


def _numbers(values: tuple[int, ...]) -> str:
    """Write 0-2 rather than 0,1,2."""
    if len(values) > 2 and values == tuple(range(values[0], values[-1] + 1)):
        return f"{values[0]}-{values[-1]}"
    return ",".join(map(str, values))
