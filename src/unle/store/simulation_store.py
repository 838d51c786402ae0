"""Simulations on disk: one SQLite file, in which every simulation is one row and is stored once.

The table `simulations` has the columns

    round, id          which simulation this is; together they are the primary key
    valid, reason      whether the row may be trained on, and if not, why
    seconds, worker    how long it took, and in which process
    theta, x           float64 vectors as raw little-endian bytes; x is NULL when nothing came back
    dim, width, data   what theta and x are cut out of, with a check sum, see `unle.store.database`

and the table `facts` has a few words about them, such as the names of the data.

Every `append` is one transaction. The write-ahead log keeps a killed process from harming what was
appended before, and lets other processes read while one writes.

Whoever watches a run reads how many simulations it has without writing or locking anything. On the same machine the
counts come from the table itself. Two machines must not open SQLite's write-ahead log at once: for other machines the
process that writes the table also writes the counts, at most once a second, to a small file. Nothing depends on that
file: a count that could not be written is left out.

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

import contextlib
import json
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from unle.errors import InputError, StoreError
from unle.store.database import Database, pack, row_bytes, settle_x_width
from unle.store.reading import (
    SPAN_ROWS,
    Reservoir,
    Span,
    StoredRows,
    in_round,
    read_batches,
    read_rows,
    read_span,
    spans,
)

SECONDS_BETWEEN_WRITES = 1.0  # of the counts
COUNTS = "SELECT round, count(*), sum(1 - valid), sum(seconds) FROM simulations GROUP BY round ORDER BY round"

SAMPLE_ROWS, SAMPLE_BYTES = 100_000, 2**28  # the default sample has at most so many rows, and takes so much memory
SPAN_BYTES = 2**24  # of a span, where rows are so long that `SPAN_ROWS` of them would take more

_INSERT = (
    "INSERT INTO simulations (round, id, valid, reason, seconds, worker, dim, width, data) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


class Tally(NamedTuple):
    """How many simulations there are."""

    count: int  # of all
    valid: int  # of those that may be trained on
    seconds: float  # that all took together


class SimulationStore:
    """An append-only table of simulations in one file.

    Args:
        path: the file, created with its tables when it does not exist; None keeps the table in memory.
        read_only: only look, which needs no right to write; the file must exist.
        counts: a file that is kept up to date with the counts of every round; None for none.

    Raises:
        StoreError: the file is damaged, cannot be opened, or is something else.
    """

    def __init__(self, path: str | Path | None, *, read_only: bool = False, counts: Path | None = None):
        self._database = Database(None if path is None else Path(path), read_only=read_only)
        self._progress_file = None
        if counts is not None:
            self._progress_file = ProgressFile(counts, as_counts(self._database.query(COUNTS)))

    def __enter__(self) -> "SimulationStore":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def path(self) -> Path | None:
        """The file; None in memory."""
        return self._database.path

    def close(self) -> None:
        """Close the file; what was appended is already safe."""
        if self._progress_file is not None:
            self._progress_file.write()
        self._database.close()

    def append(
        self,
        *,
        ids: Sequence[int] | Int[np.ndarray, "n"],  # the number of each simulation within its round
        theta: Float[np.ndarray, "n dim"],  # parameters, one row each
        x: Sequence[np.ndarray | None] | Float[np.ndarray, "n dim_x"],  # data vectors; None where nothing came back
        reasons: Sequence[str],  # the empty string for a valid row, otherwise why it is not valid
        seconds: Sequence[float] | Float[np.ndarray, "n"] | None = None,  # the time each one took; zeros when not given
        round: int = 0,  # the round these belong to
        worker: str | Sequence[str] = "",  # the process that simulated, one name for all or one each
    ) -> None:
        """Add a batch of rows: all of them, or, when anything is wrong, none.

        Raises:
            InputError: the arguments do not have one entry per simulation.
            StoreError: one of the rows exists already, or the file cannot be written.
        """
        n = len(ids)
        if not n:
            return
        theta = np.asarray(theta, dtype=np.float64)
        seconds = np.zeros(n) if seconds is None else np.asarray(seconds, dtype=np.float64)
        workers = [worker] * n if isinstance(worker, str) else list(worker)
        lengths = {"ids": n, "theta": len(theta), "x": len(x), "reasons": len(reasons)}
        lengths |= {"seconds": len(seconds), "worker": len(workers)}
        if len(set(lengths.values())) > 1:
            raise InputError(f"expected one entry per simulation in every argument; got {lengths}")
        numbers = np.asarray(ids, dtype=np.int64)
        reasons = [reason.encode(errors="replace").decode() for reason in reasons]  # lone surrogates have no UTF-8
        valid = [not reason for reason in reasons]
        widths, content = pack(round, numbers, theta, x, seconds, reasons)
        rounds, dims = [int(round)] * n, [theta.shape[1]] * n
        columns = (rounds, numbers.tolist(), valid, reasons, seconds.tolist(), workers, dims, widths, content)
        try:
            self._database.change(_INSERT, zip(*columns, strict=True))
        except sqlite3.IntegrityError as error:
            raise StoreError(
                f"{self._database.name} already holds some of the simulations {numbers.min()} to {numbers.max()} "
                f"of round {round}; each is stored once."
            ) from error
        if self._progress_file is not None:
            self._progress_file.add(int(round), n, n - sum(valid), float(seconds.sum()))

    def count(self, round: int | None = None) -> int:
        """Return how many simulations there are, in one round or in all."""
        condition, values = in_round(round)
        return self._database.query(f"SELECT count(*) FROM simulations WHERE {condition}", values)[0][0]

    def tally(self, round: int | None = None) -> Tally:
        """Return how many simulations there are, how many of them are valid, and how long they took together."""
        condition, values = in_round(round)
        columns = "count(*), sum(valid), sum(seconds)"
        row = self._database.query(f"SELECT {columns} FROM simulations WHERE {condition}", values)[0]
        return Tally(*(number or 0 for number in row))

    def ids(self, round: int = 0) -> Int[np.ndarray, "n"]:
        """Return the numbers of the simulations of a round, in order."""
        rows = self._database.stream("SELECT id FROM simulations WHERE round = ? ORDER BY id", (round,))
        return np.fromiter((row[0] for row in rows), dtype=np.int64)

    def reasons(self, round: int | None = None) -> dict[str, int]:
        """Return how often each reason occurs, by its first words ("not finite", "ValueError", ...)."""
        condition, values = in_round(round)
        words = "substr(reason, 1, instr(reason || ':', ':') - 1)"
        statement = f"SELECT {words}, count(*) FROM simulations WHERE valid = 0 AND {condition} GROUP BY 1"
        return dict(self._database.query(f"{statement} ORDER BY 2 DESC, 1", values))

    def width(self, round: int | None = 0) -> int | None:
        """Return the length of the valid data vectors of a round, or of all; None if there are none."""
        condition, values = in_round(round)
        rows = self._database.query(f"SELECT width FROM simulations WHERE {condition} AND valid LIMIT 1", values)
        return rows[0][0] if rows else None

    def dim(self) -> int:
        """Return the number of parameters; 0 if there are no simulations."""
        rows = self._database.query("SELECT dim FROM simulations LIMIT 1")
        if rows and not isinstance(rows[0][0], int):
            raise StoreError(f"{self._database.name} is damaged: its vectors have impossible lengths.")
        return rows[0][0] if rows else 0

    def workers(self) -> dict[str, int]:
        """Return how many simulations each worker did."""
        return dict(self._database.query("SELECT worker, count(*) FROM simulations GROUP BY 1 ORDER BY 1"))

    def read(self, round: int | None = None) -> StoredRows:
        """Return the simulations of one round, or of all, as arrays.

        Raises:
            StoreError: a row is damaged.
        """
        return read_rows(self._database, round)

    def batches(
        self, size: int, *, round: int | None = None, shuffle: int | None = None
    ) -> Iterator[tuple[Float[np.ndarray, "rows dim"], Float[np.ndarray, "rows dim_x"]]]:
        """Yield the valid simulations in batches, for training sets that do not fit in memory.

        Args:
            size: rows of each batch; the last one may have fewer.
            round: take one round only.
            shuffle: None keeps the order of (round, id). A number is the seed of a random order, in which blocks of
                neighbouring rows are visited at random and mixed, a few blocks at a time.

        Yields:
            Pairs (theta, x).

        Raises:
            StoreError: a row is damaged.
        """
        if size < 1:
            raise InputError(f"expected batches of at least one row; got {size}")
        return read_batches(self._database, size, round=round, shuffle=shuffle)

    def spans(self, size: int | None = None) -> list[Span]:
        """Cut the table into spans of neighbouring rows, for `read_span`; of a size that is quickly read by default."""
        if size is None:
            size = max(64, min(SPAN_ROWS, SPAN_BYTES // self._row_bytes()))
        return spans(self._database, None, size)

    def read_span(self, span: Span, width: int) -> StoredRows:
        """Return the rows of a span, as `read` does; `width` is the length of all valid data vectors.

        Raises:
            StoreError: a row is damaged.
        """
        return read_span(self._database, span, width)

    def sample(self, rows: int | None = None, *, seed: int = 0) -> StoredRows:
        """Return a uniform random sample of all simulations, in the order of (round, id), in bounded memory.

        Args:
            rows: most to return; if there are no more, all of them are. By default 100,000, or as many as take a
                quarter of a gigabyte: enough to judge a run by.
            seed: fixes the sample.

        Raises:
            StoreError: a row is damaged.
        """
        if rows is None:
            rows = max(1, min(SAMPLE_ROWS, SAMPLE_BYTES // self._row_bytes()))
        if self.count() <= rows:
            return self.read()
        reservoir, width = Reservoir(rows, [seed]), self.width(None) or 0
        for span in self.spans():
            reservoir.offer(self.read_span(span, width))
        sample, _ = reservoir.sample()
        return sample.take(np.lexsort((sample.id, sample.round)))

    def _row_bytes(self) -> int:
        return row_bytes(self.dim(), self.width(None) or 0)

    def settle_x_width(self, round: int) -> None:
        """Decide by majority which length of x is the right one; see `unle.store.database`."""
        settle_x_width(self._database, round)

    def fact(self, name: str) -> Any:
        """Return what `remember` wrote under this name, or None."""
        rows = self._database.query("SELECT value FROM facts WHERE name = ?", (name,))
        try:
            return json.loads(rows[0][0]) if rows else None
        except (TypeError, ValueError) as error:
            raise StoreError(f"{self._database.name} is damaged: its fact `{name}` cannot be read.") from error

    def remember(self, name: str, value: Any) -> None:
        """Write a few words about the simulations, made of numbers, strings and lists."""
        self._database.change("INSERT OR REPLACE INTO facts VALUES (?, ?)", [(name, json.dumps(value))])


class RoundCount(NamedTuple):
    """How far the simulations of one round are."""

    round: int  # its number
    done: int  # simulations in the table
    invalid: int  # of them
    seconds: float  # that they took together


class ProgressFile:
    """The counts of every round, kept up to date in a file."""

    def __init__(self, path: Path, counts: list[RoundCount]):
        self._path = path
        self._counts = {count.round: count for count in counts}
        self._written, self._changed = 0.0, False

    def add(self, round: int, done: int, invalid: int, seconds: float) -> None:
        """Count some more rows of one round."""
        old = self._counts.get(round, RoundCount(round, 0, 0, 0.0))
        self._counts[round] = RoundCount(round, old.done + done, old.invalid + invalid, old.seconds + seconds)
        self._changed = True
        if time.monotonic() - self._written >= SECONDS_BETWEEN_WRITES:
            self.write()

    def write(self) -> None:
        """Write the counts if they have changed, in one step, so that no reader sees a part."""
        if not self._changed:
            return
        self._written, self._changed = time.monotonic(), False
        rows = [list(self._counts[number]) for number in sorted(self._counts)]
        beside = self._path.with_suffix(".new")
        with contextlib.suppress(OSError):
            beside.write_text(json.dumps(rows), encoding="utf-8")
            os.replace(beside, self._path)


def read_counts(path: Path) -> list[RoundCount]:
    """Return the counts in a progress file; none if there is no such file, or if it is something else."""
    try:
        return as_counts(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return []


def peek_simulations(path: str | Path) -> list[RoundCount]:
    """Return the counts of every round in a simulation table; none if the file does not exist yet."""
    path = Path(path)
    if not path.exists():
        return []
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=2.0)
        try:
            return as_counts(connection.execute(COUNTS).fetchall())
        finally:
            connection.close()
    except sqlite3.Error as error:
        if "no such table" in str(error):  # made a moment ago, and still empty
            return []
        raise StoreError(f"{path} could not be read: {error}.") from None


def as_counts(rows: list) -> list[RoundCount]:
    """Return rows of JSON or of SQLite as counts."""
    return [RoundCount(int(r), int(n), int(bad or 0), float(seconds or 0.0)) for r, n, bad, seconds in rows]
