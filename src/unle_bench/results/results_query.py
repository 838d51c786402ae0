"""What a results file holds, as figures ask for it."""

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np

from unle_bench import TASKS
from unle_bench.methods.registry import Registry
from unle_bench.results.results_csv import RowsAlone
from unle_bench.results.results_store import Cell, ResultsStore
from unle_bench.results.summaries import Run, Summary, Times, comparable, ordered, summaries, timings


class ResultsQuery:
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
    def summaries(self) -> dict[tuple[str, str, int], Summary]:
        """Summaries of C2ST by (task, method, budget)."""
        return summaries(self.rows)

    @property
    def comparable(self) -> bool:
        """Whether published numbers may be drawn beside these rows."""
        return comparable(self.rows)

    @property
    def has_arrays(self) -> bool:
        """Whether draws and densities may be stored beside the rows."""
        return not isinstance(self._results, RowsAlone)

    def tasks(self, methods: Iterable[str]) -> list[str]:
        """Return the tasks that have rows of one of the methods."""
        wanted = set(methods)
        return ordered((task for task, method, _ in self.summaries if method in wanted), list(TASKS))

    def curve(self, task: str, method: str) -> list[tuple[int, Summary]]:
        """Return (budget, summary of C2ST), by budget."""
        keys = sorted(key for key in self.summaries if key[:2] == (task, method))
        return [(key[2], self.summaries[key]) for key in keys]

    @cached_property
    def _timings(self) -> dict[Run, Times]:
        return timings(self.rows)

    def machines(self, methods: Iterable[str]) -> list[str]:
        """Return the machines on which rows of one of the methods were made."""
        wanted = set(methods)
        return sorted({run.machine for run in self._timings if run.method in wanted})

    def stages(self, task: str, method: str, machine: str) -> dict[int, dict[str, float]]:
        """Return the mean minutes of every stage on a machine, by budget; an observation is charged with the whole fit.

        Where observations were drawn in calls of different sizes, those of the largest count: whole runs, not what an
        interruption had left.
        """
        runs = [run for run in self._timings if (run.task, run.method, run.machine) == (task, method, machine)]
        largest = {run.budget: run for run in sorted(runs, key=lambda run: run.together)}
        return {
            budget: {stage: seconds / 60 for stage, seconds in self._timings[run].seconds.items()}
            for budget, run in sorted(largest.items())
        }

    def pictured(self, task: str, method: str, name: str, observation: int | None = None) -> Cell | None:
        """Return the row with the largest budget that has such a record, of one observation or of any, or None."""
        cells = [cell for cell in self._results.records(name) if (cell.task, cell.method) == (task, method)]
        cells = [cell for cell in cells if observation in (None, cell.observation)]
        return max(cells, key=lambda cell: (cell.budget, -cell.seed), default=None)

    def record(self, cell: Cell, name: str) -> dict[str, np.ndarray]:
        """Return the arrays of a record."""
        return self._results.record(cell, name)
