"""What a benchmark found: one row per task, method, budget, seed and observation, in one SQLite file.

A row is written in a transaction of its own as soon as it is finished, so that kill -9 loses nothing that was finished
and repeats nothing. Several processes may write at a time. Beside the rows lie records: arrays for figures, such as
draws or a density on a grid.
"""

import io
import json
import sqlite3
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from unle.errors import StoreError

FORMAT = 1
_APPLICATION = 0x756E6C62  # "unlb"
_BUSY_SECONDS = 120.0  # how long one writer waits for another
KEY = ("task", "method", "budget", "seed", "observation")
NUMBERS = (
    "c2st",
    "c2st_error",
    "mmd",
    "mmd_error",
    "energy_distance",
    "energy_distance_error",
    "mean_error",
    "mean_error_error",
    "energy_score",
    "simulate_s",
    "train_s",
    "infer_s",
    "score_s",
)
COLUMNS = (*KEY, "outcome", *NUMBERS, "conditions", "created")
OK = "ok"

_CREATE = f"""
CREATE TABLE results (
    task TEXT NOT NULL, method TEXT NOT NULL, budget INTEGER NOT NULL, seed INTEGER NOT NULL,
    observation INTEGER NOT NULL, outcome TEXT NOT NULL, {", ".join(f"{name} REAL" for name in NUMBERS)},
    conditions TEXT NOT NULL, created TEXT NOT NULL, PRIMARY KEY ({", ".join(KEY)})
) WITHOUT ROWID
"""
_CREATE_RECORDS = """
CREATE TABLE records (
    task TEXT NOT NULL, method TEXT NOT NULL, budget INTEGER NOT NULL, seed INTEGER NOT NULL,
    observation INTEGER NOT NULL, name TEXT NOT NULL, data BLOB NOT NULL, created TEXT NOT NULL,
    PRIMARY KEY (task, method, budget, seed, observation, name)
)
"""
_CREATE_RUNNING = "CREATE TABLE running (process INTEGER PRIMARY KEY, job TEXT NOT NULL)"
_CREATE_FACTS = "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL)"


class Cell(NamedTuple):
    """What a row is about."""

    task: str
    method: str
    budget: int
    seed: int
    observation: int


class ResultsStore:
    """An open results file.

    Args:
        path: the file; made if it does not exist, unless `read_only`.
        read_only: do not create or change anything.
    """

    def __init__(self, path: Path | str, *, read_only: bool = False):
        self.path = Path(path)
        if read_only and not self.path.exists():
            raise StoreError(f"{self.path} does not exist; make it with `unle bench --results {self.path}`.")
        try:
            self._sql = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None)
            self._prepare()
        except sqlite3.Error as error:
            raise StoreError(f"{self.path} could not be opened as a results file: {error}.") from error

    def __enter__(self) -> "ResultsStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._sql.close()

    def add(self, cell: Cell, outcome: str, numbers: Mapping[str, float], conditions: Mapping[str, Any]) -> bool:
        """Write a finished row; return False, and change nothing, if it is there already.

        Args:
            cell: what the row is about.
            outcome: "ok", or why there is no result.
            numbers: some of `NUMBERS`.
            conditions: how it was made, as JSON-able data.
        """
        unknown = set(numbers) - set(NUMBERS)
        assert not unknown, unknown
        values = [None if name not in numbers else float(numbers[name]) for name in NUMBERS]
        row = (*cell, outcome, *values, json.dumps(conditions, sort_keys=True), _now())
        marks = ", ".join("?" * len(COLUMNS))
        return self._change(f"INSERT OR IGNORE INTO results ({', '.join(COLUMNS)}) VALUES ({marks})", row) == 1

    def finished(self) -> set[Cell]:
        """Return the cells of all rows."""
        return {Cell(*row) for row in self._query(f"SELECT {', '.join(KEY)} FROM results")}

    def rows(self) -> list[dict[str, Any]]:
        """Return all rows, in the order of their keys, with the conditions as a dictionary."""
        rows = [
            dict(zip(COLUMNS, row, strict=True)) for row in self._query(f"SELECT {', '.join(COLUMNS)} FROM results")
        ]
        return [row | {"conditions": json.loads(row["conditions"])} for row in rows]

    def failed(self) -> set[Cell]:
        """Return the cells whose rows are failures."""
        return {Cell(*row) for row in self._query(f"SELECT {', '.join(KEY)} FROM results WHERE outcome != ?", (OK,))}

    def forget(self, cells: Iterable[Cell]) -> int:
        """Delete rows, so that they are made again; return how many there were. Arrays for figures stay."""
        where = " AND ".join(f"{key} = ?" for key in KEY)
        self._change("BEGIN IMMEDIATE", ())  # all or none, and one wait for the disk
        try:
            number = sum(self._change(f"DELETE FROM results WHERE {where}", cell) for cell in cells)
        except BaseException:
            self._change("ROLLBACK", ())
            raise
        self._change("COMMIT", ())
        return number

    def keep(self, cell: Cell, name: str, arrays: Mapping[str, Any]) -> None:
        """Keep arrays for figures, in place of those of the same name."""
        buffer = io.BytesIO()
        plain: dict[str, Any] = {key: np.asarray(value) for key, value in arrays.items()}
        np.savez_compressed(buffer, **plain)
        statement = "INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        self._change(statement, (*cell, name, buffer.getvalue(), _now()))

    def records(self, name: str) -> list[Cell]:
        """Return the cells that have arrays of this name."""
        found = self._query(f"SELECT {', '.join(KEY)} FROM records WHERE name = ? ORDER BY {', '.join(KEY)}", (name,))
        return [Cell(*row) for row in found]

    def record(self, cell: Cell, name: str) -> dict[str, np.ndarray]:
        """Return the arrays that `keep` kept."""
        where = " AND ".join(f"{key} = ?" for key in KEY)
        found = self._query(f"SELECT data FROM records WHERE {where} AND name = ?", (*cell, name))
        if not found:
            raise StoreError(f"{self.path} has no {name} of {cell}.")
        with np.load(io.BytesIO(found[0][0]), allow_pickle=False) as arrays:
            return dict(arrays)

    def settle(self, conditions: Mapping[str, Any]) -> None:
        """Fix what must be the same for all rows of a file, or refuse what differs from what was fixed.

        Raises:
            StoreError: naming the difference.
        """
        for name, value in conditions.items():
            text = json.dumps(value)
            self._change("INSERT OR IGNORE INTO facts VALUES (?, ?)", (name, text))
            ((kept,),) = self._query("SELECT value FROM facts WHERE name = ?", (name,))
            if kept != text:
                raise StoreError(
                    f"{self.path} holds results with {name} {json.loads(kept)}; got {value}, which must not be mixed "
                    "with them; try another file."
                )

    def begin(self, process: int, jobs: Iterable[str]) -> None:
        """Write down what a worker process is busy with, in case it dies."""
        self._change("INSERT OR REPLACE INTO running VALUES (?, ?)", (process, "\n".join(jobs)))

    def end(self, process: int) -> None:
        """Cross that out."""
        self._change("DELETE FROM running WHERE process = ?", (process,))

    def running(self, *, clear: bool = False) -> list[str]:
        """Return what worker processes are, or were, busy with."""
        jobs = [job for row in self._query("SELECT job FROM running") for job in row[0].split("\n")]
        if clear:
            self._change("DELETE FROM running", ())
        return jobs

    def _query(self, statement: str, values: Iterable[Any] = ()) -> list[tuple]:
        try:
            return self._sql.execute(statement, tuple(values)).fetchall()
        except sqlite3.Error as error:
            raise StoreError(f"{self.path} could not be read: {error}.") from error

    def _change(self, statement: str, values: Iterable[Any]) -> int:
        try:
            return self._sql.execute(statement, tuple(values)).rowcount
        except sqlite3.Error as error:
            raise StoreError(f"{self.path} could not be written: {error}. What it held is intact.") from error

    def _prepare(self) -> None:
        self._sql.execute("BEGIN IMMEDIATE")
        try:
            (tables,) = self._sql.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            if tables == 0:
                self._sql.execute(f"PRAGMA application_id = {_APPLICATION}")
                self._sql.execute(f"PRAGMA user_version = {FORMAT}")
                for statement in (_CREATE, _CREATE_RECORDS, _CREATE_RUNNING, _CREATE_FACTS):
                    self._sql.execute(statement)
        finally:
            self._sql.execute("COMMIT")
        self._sql.execute("PRAGMA journal_mode = WAL")
        self._sql.execute("PRAGMA synchronous = FULL")  # a row that was written survives a loss of power too
        (application,) = self._sql.execute("PRAGMA application_id").fetchone()
        (version,) = self._sql.execute("PRAGMA user_version").fetchone()
        if application != _APPLICATION or version != FORMAT:
            self._sql.close()
            raise StoreError(f"{self.path} is not a results file of format {FORMAT}; try another name.")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
