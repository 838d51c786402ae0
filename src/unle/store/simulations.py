"""Simulations on disk: one SQLite file, one row per simulation, ever.

The table `simulations` has the columns

    round, id          which simulation this is; together they are the primary key
    theta, x           float64 vectors as raw little-endian bytes; x is NULL when nothing came back
    valid, reason      whether the row may be trained on, and if not, why
    seconds, worker    how long it took, and who did it

Every `append` is one transaction. The write-ahead log keeps a killed process from harming what was
appended before, and lets other processes read while one writes.

Example:
    >>> import tempfile, numpy as np
    >>> from unle.store import SimulationStore
    >>> path = tempfile.mkdtemp() + "/simulations.sqlite"
    >>> with SimulationStore(path) as store:
    ...     store.append(ids=[0, 1], theta=np.ones((2, 3)), x=[np.array([0.5]), None], reasons=["", "NaN"])
    ...     rows = store.read()
    >>> rows.x.tolist(), rows.valid.tolist()
    ([[0.5], [nan]], [True, False])
"""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from unle.errors import InputError, StoreError

FORMAT = 1  # written as SQLite's user_version; raise it when the columns change
_APPLICATION = 0x756E6C65  # "unle": tells our files from any other SQLite database

_COLUMNS = ("round", "id", "theta", "x", "valid", "reason", "seconds", "worker")
_CREATE = """
CREATE TABLE simulations (
    round INTEGER NOT NULL,
    id INTEGER NOT NULL,
    theta BLOB NOT NULL,
    x BLOB,
    valid INTEGER NOT NULL CHECK (valid IN (0, 1)),
    reason TEXT NOT NULL,
    seconds REAL NOT NULL,
    worker TEXT NOT NULL,
    PRIMARY KEY (round, id)
)
"""


class StoredRows(NamedTuple):
    """What `SimulationStore.read` returns, in the order of (round, id).

    Attributes:
        round: the round in which each simulation was asked for.
        id: its number within that round.
        theta: parameters.
        x: data; a row of NaN where nothing of the right length came back.
        valid: whether the row may be trained on.
        reasons: why not; the empty string for valid rows.
        seconds: the time each simulation took.
        workers: who did it.
    """

    round: Int[np.ndarray, "n"]
    id: Int[np.ndarray, "n"]
    theta: Float[np.ndarray, "n dim"]
    x: Float[np.ndarray, "n dim_x"]
    valid: Bool[np.ndarray, "n"]
    reasons: tuple[str, ...]
    seconds: Float[np.ndarray, "n"]
    workers: tuple[str, ...]


class SimulationStore:
    """An append-only table of simulations in one file.

    Args:
        path: the file; created, with its table, when it does not exist.

    Raises:
        StoreError: the file is damaged, or is something else.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        try:
            # Autocommit: transactions are opened and closed by hand, below, and nowhere else.
            self._connection = sqlite3.connect(self.path, isolation_level=None)
        except sqlite3.Error as error:
            raise StoreError(f"{self.path} could not be opened as a simulation store: {error}.") from error
        try:
            self._prepare()
        except sqlite3.DatabaseError as error:
            self.close()
            raise StoreError(
                f"{self.path} is damaged or no simulation store ({error}); restore it or start a new run."
            ) from error
        except StoreError:
            self.close()
            raise

    def __enter__(self) -> "SimulationStore":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; what was appended is already safe."""
        self._connection.close()

    def append(
        self,
        *,
        ids: Sequence[int] | Int[np.ndarray, "n"],
        theta: Float[np.ndarray, "n dim"],
        x: Sequence[np.ndarray | None] | Float[np.ndarray, "n dim_x"],
        reasons: Sequence[str],
        seconds: Sequence[float] | Float[np.ndarray, "n"] | None = None,
        round: int = 0,
        worker: str = "",
    ) -> None:
        """Add a batch of rows: all of them, or, when anything is wrong, none.

        Args:
            ids: the number of each simulation within its round.
            theta: parameters, one row each.
            x: data vectors; None where nothing came back.
            reasons: the empty string for a valid row, otherwise why it is not valid.
            seconds: the time each one took; zeros when not given.
            round: the round these belong to.
            worker: who did them.

        Raises:
            InputError: the arguments do not have one entry per simulation.
            StoreError: one of the rows exists already, or the file cannot be written.
        """
        seconds = [0.0] * len(ids) if seconds is None else seconds
        lengths = {
            "ids": len(ids),
            "theta": len(theta),
            "x": len(x),
            "reasons": len(reasons),
            "seconds": len(seconds),
        }
        if len(set(lengths.values())) > 1:
            raise InputError(f"expected one entry per simulation in every argument; got {lengths}")
        rows = [
            (round, int(i), _pack(t), None if v is None else _pack(v), int(not why), why, float(s), worker)
            for i, t, v, why, s in zip(ids, theta, x, reasons, seconds, strict=True)
        ]
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                self._connection.executemany("INSERT INTO simulations VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
                self._connection.execute("COMMIT")
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
        except sqlite3.IntegrityError as error:
            raise StoreError(
                f"{self.path} already holds some of the simulations {min(ids)} to {max(ids)} "
                f"of round {round}; each is stored once."
            ) from error
        except sqlite3.Error as error:
            raise StoreError(f"{self.path} could not be written: {error}.") from error

    def count(self, round: int | None = None) -> int:
        """Return how many simulations there are, in one round or in all."""
        where, values = ("", ()) if round is None else (" WHERE round = ?", (round,))
        return self._query(f"SELECT count(*) FROM simulations{where}", values)[0][0]

    def read(self, round: int | None = None) -> StoredRows:
        """Return the simulations of one round, or of all, as arrays.

        Raises:
            StoreError: a vector has an impossible length.
        """
        where, values = ("", ()) if round is None else (" WHERE round = ?", (round,))
        rows = self._query(f"SELECT {', '.join(_COLUMNS)} FROM simulations{where} ORDER BY round, id", values)
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(_COLUMNS)
        rounds, ids, thetas, xs, valid, reasons, seconds, workers = columns
        theta = [self._unpack(blob) for blob in thetas]
        if len({len(t) for t in theta}) > 1:
            raise StoreError(f"{self.path} is damaged: its parameter vectors differ in length.")
        x = [None if blob is None else self._unpack(blob) for blob in xs]
        dim_x = {len(v) for v, ok in zip(x, valid, strict=True) if ok and v is not None}
        if len(dim_x) > 1 or any(ok and v is None for v, ok in zip(x, valid, strict=True)):
            raise StoreError(f"{self.path} is damaged: its valid data vectors differ in length.")
        width = dim_x.pop() if dim_x else max((len(v) for v in x if v is not None), default=0)
        nothing = np.full(width, np.nan)
        return StoredRows(
            round=np.array(rounds, dtype=np.int64),
            id=np.array(ids, dtype=np.int64),
            theta=np.array(theta, dtype=np.float64).reshape(len(rows), -1 if theta else 0),
            x=np.array([v if v is not None and len(v) == width else nothing for v in x], dtype=np.float64).reshape(
                len(rows), width
            ),
            valid=np.array(valid, dtype=bool),
            reasons=tuple(reasons),
            seconds=np.array(seconds, dtype=np.float64),
            workers=tuple(workers),
        )

    def _prepare(self) -> None:
        """Check an existing file, or lay out a new one."""
        (tables,) = self._connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if tables == 0:
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute(f"PRAGMA application_id = {_APPLICATION}")
            self._connection.execute(f"PRAGMA user_version = {FORMAT}")
            self._connection.execute(_CREATE)
            self._connection.execute("COMMIT")
            return
        (application,) = self._connection.execute("PRAGMA application_id").fetchone()
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        columns = tuple(row[1] for row in self._connection.execute("PRAGMA table_info(simulations)"))
        if application != _APPLICATION or columns != _COLUMNS:
            raise StoreError(f"{self.path} is an SQLite file of another program, not a simulation store.")
        if version != FORMAT:
            raise StoreError(f"{self.path} has format {version}; this version of unle reads format {FORMAT}.")
        (verdict,) = self._connection.execute("PRAGMA integrity_check(1)").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict.replace("\n", " "))
        self._connection.execute("PRAGMA journal_mode = WAL")

    def _query(self, statement: str, values: tuple) -> list[tuple]:
        try:
            return self._connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise StoreError(f"{self.path} could not be read: {error}.") from error

    def _unpack(self, blob: bytes) -> np.ndarray:
        if not isinstance(blob, bytes) or len(blob) % 8:
            raise StoreError(f"{self.path} is damaged: a vector is not made of whole numbers of eight bytes.")
        return np.frombuffer(blob, dtype="<f8")


def _pack(vector: np.ndarray) -> bytes:
    return np.ascontiguousarray(vector, dtype="<f8").tobytes()
