"""The commands that make given rows of a benchmark again."""

from collections.abc import Iterable, Mapping
from typing import Any

from unle_bench import TASKS
from unle_bench.summaries import ordered
from unle_bench.tables import COUNTERPARTS


def commands_of(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return `unle bench` commands that make exactly these rows, few of them.

    Example:
        >>> keys = [(task, "nle", budget, 0, 1) for task in ("two_moons", "slcp") for budget in (1000, 10000)]
        >>> names = ("task", "method", "budget", "seed", "observation")
        >>> commands_of([dict(zip(names, key)) for key in keys])
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
