"""The SQLite file of the simulation store: opening, checking, transactions, and errors in one sentence."""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from unle.errors import StoreError

FORMAT = 2  # written as SQLite's user_version; raise it when the columns change
_APPLICATION = 0x756E6C65  # "unle": tells our files from any other SQLite database

COLUMNS = ("round", "id", "valid", "reason", "seconds", "worker", "dim", "width", "data", "theta", "x")
# Without rowid: the rows lie in the order of (round, id), in which they are read. Fetching a cell costs far more than
# its bytes: all numbers of a row are one blob (see `row_format`), and theta and x are cut out of it on demand.
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


class Database:
    """An open simulation file; every error of SQLite leaves as a `StoreError`.

    Args:
        path: the file; None for a table in memory.
        read_only: do not create or change anything.
    """

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
        """Execute a statement for every row, all of them or none.

        Raises:
            sqlite3.IntegrityError: a row exists already.
            StoreError: the file cannot be written.
        """
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
