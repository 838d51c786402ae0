"""What a results file holds, as figures ask for it."""

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np

from unle.bench import TASKS
from unle.bench.registry import Registry
from unle.bench.results_csv import RowsAlone
from unle.bench.tables import ordered, summaries
from unle.store.results import OK, Cell, ResultsStore

STAGES = ("simulate", "train", "infer")


class Found:
    """Rows and records of an open results file.

    Args:
        results: the file, or rows alone, without arrays for pictures.
        registry: tasks and methods by name.
    """

    def __init__(self, results: ResultsStore | RowsAlone, registry: Registry | None = None):
        self._results = results
        self.registry = Registry.with_files() if registry is None else registry
        self.rows: list[dict[str, Any]] = results.rows()

    @cached_property
    def summaries(self) -> dict:
        """Summaries of C2ST by (task, method, budget)."""
        return summaries(self.rows)

    def tasks(self, methods: Iterable[str]) -> list[str]:
        """Return the tasks that have rows of one of the methods."""
        wanted = set(methods)
        return ordered((task for task, method, _ in self.summaries if method in wanted), list(TASKS))

    def curve(self, task: str, method: str) -> list[tuple[int, float, float]]:
        """Return (budget, mean C2ST, standard error), by budget."""
        keys = sorted(key for key in self.summaries if key[:2] == (task, method))
        found = [(key[2], self.summaries[key]) for key in keys]
        return [(budget, one.mean, one.error if np.isfinite(one.error) else 0.0) for budget, one in found]

    def stages(self, task: str, method: str) -> dict[int, dict[str, float]]:
        """Return the mean minutes of every stage, by budget; an observation is charged with the whole fit."""
        minutes: dict[int, dict[str, float]] = {}
        for budget in sorted({key[2] for key in self.summaries if key[:2] == (task, method)}):
            rows = [r for r in self.rows if (r["task"], r["method"], r["budget"]) == (task, method, budget)]
            rows = [row for row in rows if row["outcome"] == OK]
            if rows:
                minutes[budget] = {s: float(np.mean([r[f"{s}_s"] or 0.0 for r in rows])) / 60 for s in STAGES}
        return minutes

    def devices(self) -> list[str]:
        """Return the machines that rows were made on."""
        conditions = [row["conditions"] for row in self.rows]
        return sorted({one.get("machine") or one.get("device", "unknown") for one in conditions})

    def pictured(self, task: str, method: str, name: str) -> Cell | None:
        """Return the row with the largest budget that has such a record, or None."""
        cells = [cell for cell in self._results.records(name) if (cell.task, cell.method) == (task, method)]
        return max(cells, key=lambda cell: (cell.budget, -cell.seed), default=None)

    def record(self, cell: Cell, name: str) -> dict[str, np.ndarray]:
        """Return the arrays of a record."""
        return self._results.record(cell, name)
