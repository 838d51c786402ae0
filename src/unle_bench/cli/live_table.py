"""A table that fills while a benchmark runs: on a terminal it is redrawn, elsewhere finished rows are lines."""

import sys
import time
from pathlib import Path
from typing import Any

from unle.cli import say
from unle_bench.results.results_store import OK, Cell, ResultsStore


class LiveTable:
    """Shows, for every task, method and budget of a sweep, how many rows are done and their mean C2ST so far.

    Args:
        sweep: what runs.
        path: of the results file, which is read again at every update.
    """

    def __init__(self, sweep: Any, path: Path):
        self._wanted = sweep.cells()
        self._path, self._start = path, time.monotonic()
        self._live: Any = None
        self._told: set[Cell] = set()

    def __enter__(self) -> "LiveTable":
        from rich.console import Console
        from rich.live import Live

        already = self._rows()
        self._told = set(already)
        if sys.stderr.isatty():
            self._live = Live(self._table(already), console=Console(stderr=True), auto_refresh=False)
            self._live.start()
        else:
            left = len(self._wanted) - len(already)
            say(f"{len(self._wanted)} rows in all, {len(already)} there already, {left} to do")
        return self

    def __exit__(self, *_: object) -> None:
        self.update()
        if self._live is not None:
            self._live.stop()

    def update(self) -> None:
        """Show what is new."""
        rows = self._rows()
        if self._live is not None:
            self._live.update(self._table(rows), refresh=True)
            return
        for cell in [cell for cell in rows if cell not in self._told]:
            self._told.add(cell)
            row = rows[cell]
            result = f"C2ST {row['c2st']:.3f}" if row["outcome"] == OK else f"failed: {row['outcome']}"
            name = f"{cell.task} {cell.method} {cell.budget} seed {cell.seed} observation {cell.observation}"
            say(f"{len(self._told)}/{len(self._wanted)} {name}: {result}")

    def _rows(self) -> dict[Cell, dict[str, Any]]:
        if not self._path.exists():
            return {}
        wanted = set(self._wanted)
        with ResultsStore(self._path) as store:
            rows = {Cell(r["task"], r["method"], r["budget"], r["seed"], r["observation"]): r for r in store.rows()}
        return {cell: row for cell, row in rows.items() if cell in wanted}

    def _table(self, rows: dict[Cell, dict[str, Any]]) -> Any:
        from rich import box
        from rich.table import Table

        groups: dict[tuple[str, str], dict[int, list[Cell]]] = {}
        budgets = sorted({cell.budget for cell in self._wanted})
        for cell in self._wanted:
            groups.setdefault((cell.task, cell.method), {}).setdefault(cell.budget, []).append(cell)
        seconds = time.monotonic() - self._start
        title = f"{len(rows)} of {len(self._wanted)} rows, {seconds:.0f} s: mean C2ST (rows done)"
        table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold")
        for head in ("task", "method"):
            table.add_column(head, no_wrap=True)
        for budget in budgets:
            table.add_column(f"{budget:,}", justify="right")
        for (task, method), by_budget in groups.items():
            table.add_row(task, method, *(_state(by_budget[budget], rows) for budget in budgets))
        return table


def _state(cells: list[Cell], rows: dict[Cell, dict[str, Any]]) -> str:
    done = [rows[cell] for cell in cells if cell in rows]
    if not done:
        return f"– (0/{len(cells)})"
    failed = sum(row["outcome"] != OK for row in done)
    mean = sum(row["c2st"] for row in done) / len(done)
    return f"{mean:.3f} ({len(done)}/{len(cells)}{f', {failed} failed' if failed else ''})"
