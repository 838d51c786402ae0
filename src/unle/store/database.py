"""The SQLite file of the simulation store, and the bytes of its rows.

`Database` opens and checks the file, makes transactions, and says errors in one sentence.

A stored simulation is made of theta, x, seconds and a check sum, eight bytes each, little-endian.

SQLite notices damage to the structure of its file, but not a changed number inside a row. The check sum finds it. It is
a sum of the 64-bit words of the row, each multiplied by an odd number of its own, modulo 2^64,

    check = sum_j c_j w_j  mod 2^64,      w = (round, id, valid, seconds, reason, dim x, theta_1 ..., x_1 ...).

A flip of bit b changes the sum by c_j 2^b, which is never zero. Other damage is missed with probability 2^-64. This
guards against accidents, not against forgery.

`settle_x_width` says which length of x is the right one, when a simulator returned several.  Simulations arrive in the
order in which the workers finish, and until all are there the first one decides.  At the end the majority decides, so
that the result is the same for any number of workers.
"""

import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from unle.errors import StoreError

FORMAT = 2  # written as SQLite's user_version; raise it when the columns change
_APPLICATION = 0x756E6C65  # "unle": tells our files from any other SQLite database

COLUMNS = ("round", "id", "valid", "reason", "seconds", "worker", "dim", "width", "data", "theta", "x")
# Without rowid: the rows lie in the order of (round, id), in which they are read. Fetching a cell costs far more than
# its bytes: all numbers of a row are one blob (see `row_bytes`), and theta and x are cut out of it on demand.
_CREATE = """
CREATE TABLE simulations (
    round INTEGER NOT NULL,
    id INTEGER NOT NULL,
    valid INTEGER NOT NULL CHECK (valid IN (0, 1)),
    reason TEXT NOT NULL,
    seconds REAL NOT NULL,
    worker TEXT NOT NULL,
    dim INTEGER NOT NULL,
    width INTEGER NOT NULL,
    data BLOB NOT NULL,
    theta BLOB AS (substr(data, 1, 8 * dim)) VIRTUAL,
    x BLOB AS (CASE WHEN width >= 0 THEN substr(data, 8 * dim + 1, 8 * width) END) VIRTUAL,
    PRIMARY KEY (round, id)
) WITHOUT ROWID
"""
_INDEX = "CREATE INDEX invalid ON simulations (round, id) WHERE valid = 0"  # usually few, and often asked for
_CREATE_FACTS = "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID"
NO_DATA = -1  # the width of x where the simulator returned nothing
_TAIL = 2  # numbers behind theta and x: seconds and check sum
_HEAD_WORDS, _X_POSITION = 6, 1 << 20  # in the sum, theta comes after six words, and x far behind it
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
# Rows whose only fault is their length, and the valid ones.
_CANDIDATES = "round = ? AND width >= 0 AND (valid OR reason LIKE 'wrong length:%')"


class Database:
    """An open simulation file, or a table in memory (None); every error of SQLite leaves as a `StoreError`."""

    def __init__(self, path: Path | None, *, read_only: bool = False):
        self.path = path
        self.name = "the table in memory" if path is None else str(path)
        try:
            self.sql = _open(path, read_only=read_only)
        except sqlite3.Error as error:
            raise StoreError(f"{self.name} could not be opened: {_explain(error)}.") from error
        try:
            self._prepare(read_only=read_only)
        except sqlite3.OperationalError as error:  # no right to write, a full disk, another process: not damage
            self.sql.close()
            raise StoreError(f"{self.name} could not be opened: {_explain(error)}.") from error
        except (sqlite3.DatabaseError, ValueError) as error:
            self.sql.close()
            raise StoreError(
                f"{self.name} is damaged or no simulation store ({error}); restore it or start a new run."
            ) from error
        except StoreError:
            self.sql.close()
            raise

    def query(self, statement: str, values: tuple = ()) -> list[tuple]:
        """Return all rows that a statement selects."""
        return list(self.stream(statement, values))

    def stream(self, statement: str, values: tuple = ()) -> Iterator[tuple]:
        """Yield the rows that a statement selects, one by one, in little memory."""
        try:
            yield from self.sql.execute(statement, values)
        except (sqlite3.Error, ValueError) as error:  # text that is not UTF-8 is a ValueError
            raise StoreError(f"{self.name} could not be read: {_explain(error)}.") from error

    @contextmanager
    def decoding(self) -> Iterator[None]:
        """Turn whatever damaged cells lead to inside the block into a `StoreError`."""
        try:
            yield
        except (AttributeError, TypeError, ValueError, OverflowError) as error:
            raise StoreError(f"{self.name} is damaged: {error}.") from error

    def change(self, statement: str, rows: Iterable[tuple]) -> None:
        """Execute a statement for every row, all of them or none; a row that exists is an `IntegrityError`."""
        try:
            self.sql.execute("BEGIN IMMEDIATE")
            try:
                self.sql.executemany(statement, rows)
                self.sql.execute("COMMIT")
            except BaseException:
                if self.sql.in_transaction:  # a full disk may have ended it already
                    self.sql.execute("ROLLBACK")
                raise
        except sqlite3.IntegrityError:
            raise
        except sqlite3.Error as error:
            raise StoreError(f"{self.name} could not be written: {_explain(error)}. What it held is intact.") from error

    def close(self) -> None:
        """Close the file."""
        self.sql.close()

    def _prepare(self, *, read_only: bool) -> None:
        """Check an existing file, or lay out a new one."""
        (tables,) = self.sql.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if tables == 0 and not read_only:
            self._lay_out()
            return
        (application,) = self.sql.execute("PRAGMA application_id").fetchone()
        (version,) = self.sql.execute("PRAGMA user_version").fetchone()
        columns = tuple(row[1] for row in self.sql.execute("PRAGMA table_xinfo(simulations)"))
        if application != _APPLICATION:
            raise StoreError(f"{self.name} is an SQLite file of another program, not a simulation store.")
        if version != FORMAT:
            raise StoreError(f"{self.name} has format {version}; this version of unle reads format {FORMAT}.")
        if columns != COLUMNS:
            raise StoreError(f"{self.name} is damaged: its table has other columns than a simulation store.")
        # The structure only. What is inside the rows has check sums, which are compared when rows are read.
        (verdict,) = self.sql.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict.replace("\n", " "))
        if not read_only:
            self.sql.execute("PRAGMA journal_mode = WAL")

    def _lay_out(self) -> None:
        self.sql.execute("PRAGMA journal_mode = WAL")
        self.sql.execute("BEGIN IMMEDIATE")
        self.sql.execute(f"PRAGMA application_id = {_APPLICATION}")
        self.sql.execute(f"PRAGMA user_version = {FORMAT}")
        self.sql.execute(_CREATE)
        self.sql.execute(_INDEX)
        self.sql.execute(_CREATE_FACTS)
        self.sql.execute("COMMIT")


def _open(path: Path | None, *, read_only: bool) -> sqlite3.Connection:
    # Autocommit: transactions are opened and closed by hand, in `change`, and nowhere else.
    if path is None:
        return sqlite3.connect(":memory:", isolation_level=None)
    if not read_only:
        return sqlite3.connect(path, isolation_level=None)
    if not path.exists():
        raise StoreError(f"{path} does not exist.")
    address = path.absolute().as_uri() + "?mode=ro"
    connection = sqlite3.connect(address, uri=True, isolation_level=None)
    try:
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except sqlite3.OperationalError:
        # Reading beside a writer needs a small shared file in the directory. Where none can be made, no process can be
        # writing either.
        connection.close()
        connection = sqlite3.connect(address + "&immutable=1", uri=True, isolation_level=None)
    return connection


def _explain(error: Exception) -> str:
    """Say what SQLite meant."""
    text = str(error)
    meanings = {
        "database or disk is full": "the disk is full; free some space and go on",
        "attempt to write a readonly database": "it is read-only, or lies in a read-only directory",
        "unable to open database file": "the directory is missing, or may not be read or written",
        "database is locked": "another process is writing to it",
        "disk I/O error": "the disk refused (disk I/O error); is it full, or read-only?",
    }
    return meanings.get(text, text)


def row_bytes(dim: int, width: int) -> int:
    """Return the size of a row with `dim` parameters and `width` data."""
    return 8 * (dim + max(width, 0) + _TAIL)


def pack(
    round: int,  # of all rows
    ids: Int[np.ndarray, " n"],  # number of each simulation
    theta: Float[np.ndarray, "n dim"],  # parameters
    x: Sequence[np.ndarray | None] | Float[np.ndarray, "n width"],  # data; None where there are none
    seconds: Float[np.ndarray, " n"],  # the time of each simulation
    reasons: Sequence[str],  # why a row is not valid; the empty string for a valid one
) -> tuple[list[int], list[bytes]]:
    """Return the width of x and the bytes of every row."""
    widths = [NO_DATA if vector is None else len(vector) for vector in x]
    rows = [b""] * len(widths)
    for width, members in by_width(widths):
        data = np.array([x[i] for i in members] if width > 0 else [], dtype="<f8").reshape(len(members), -1)
        numbers = np.column_stack([theta[members], data, seconds[members]]).astype("<f8")
        checks = _check_sums(round, ids[members], numbers, width, [reasons[i] for i in members])
        content = np.column_stack([numbers, checks.view("<f8")])
        for i, row in zip(members, content, strict=True):
            rows[i] = row.tobytes()
    return widths, rows


def unpack(
    round: int, ids: Int[np.ndarray, " n"], rows: Sequence[bytes], dim: int, width: int, reasons: Sequence[str]
) -> Float[np.ndarray, "n columns"]:
    """Return the numbers of rows with equal widths, one row each: theta, x, seconds.

    A row of another length, or whose check sum does not fit, is a `ValueError`.
    """
    if set(map(len, rows)) != {row_bytes(dim, width)}:
        raise ValueError("a row has another length than it should")
    content = np.frombuffer(b"".join(rows), dtype="<f8").reshape(len(rows), -1)
    numbers = content[:, :-1]
    if (_check_sums(round, ids, numbers, width, reasons) != content[:, -1].view("<u8")).any():
        raise ValueError("the check sum of a simulation does not fit its numbers")
    return numbers


def by_width(widths: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    """Yield each width and the positions of the rows that have it: nearly always there is one."""
    every = np.array(widths, dtype=np.int64)
    for width in np.unique(every).tolist():
        if width < NO_DATA:
            raise ValueError("its vectors have impossible lengths")
        yield width, np.flatnonzero(every == width).tolist()


def _check_sums(round: int, ids: np.ndarray, numbers: np.ndarray, width: int, reasons: Sequence[str]) -> np.ndarray:
    words = np.ascontiguousarray(numbers, dtype="<f8").view(np.uint64)
    dim = words.shape[1] - 1 - max(width, 0)
    head = (
        np.full(len(ids), round, dtype=np.int64).view(np.uint64),
        np.asarray(ids, dtype=np.int64).view(np.uint64),
        np.fromiter((not reason for reason in reasons), np.uint64, len(reasons)),
        words[:, -1],
        np.fromiter(map(_text_word, reasons), np.uint64, len(reasons)),
        np.full(len(ids), width, dtype=np.int64).view(np.uint64),
    )
    with np.errstate(over="ignore"):
        total = sum(word * factor for word, factor in zip(head, _factors(0, _HEAD_WORDS), strict=True))
        total += words[:, :dim] @ _factors(_HEAD_WORDS, dim)
        return total + words[:, dim:-1] @ _factors(_X_POSITION, max(width, 0))


def _factors(first: int, count: int) -> np.ndarray:
    """Return the odd factors of `count` neighbouring words."""
    return np.arange(first + 1, first + count + 1, dtype=np.uint64) * _GOLDEN | np.uint64(1)


@lru_cache(maxsize=4096)
def _text_word(text: str) -> int:
    return zlib.crc32(text.encode())


def wrong_length(length: int, width: int) -> str:
    """Return the reason of a data vector that has another length than the others."""
    return f"wrong length: {length} values instead of {width}"


def settle_x_width(database: Database, round: int) -> None:
    """Make the data vectors of the most frequent length valid, and the others invalid."""
    counts = database.query(
        f"SELECT width, max(valid) FROM simulations WHERE {_CANDIDATES} GROUP BY 1 ORDER BY count(*) DESC, 1", (round,)
    )
    if [valid for _, valid in counts] in ([], [1] + [0] * (len(counts) - 1)):
        return
    most = counts[0][0]
    rows = database.query(f"SELECT id, reason, dim, width, data FROM simulations WHERE {_CANDIDATES}", (round,))
    ids, reasons, dims, widths, content = zip(*rows, strict=True)
    changes, dim = [], dims[0]
    with database.decoding():
        for width, members in by_width(widths):
            numbers = np.array([ids[i] for i in members])
            old = unpack(round, numbers, [content[i] for i in members], dim, width, [reasons[i] for i in members])
            reason = "" if width == most else wrong_length(width, most)
            _, packed = pack(round, numbers, old[:, :dim], old[:, dim:-1], old[:, -1], [reason] * len(members))
            changes += [(not reason, reason, row, ids[i], round) for row, i in zip(packed, members, strict=True)]
    database.change("UPDATE simulations SET valid = ?, reason = ?, data = ? WHERE id = ? AND round = ?", changes)
