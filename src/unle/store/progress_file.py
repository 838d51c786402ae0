"""How many simulations a run has, for a person who watches it from outside: nothing is written there, no lock taken.

On the same machine the counts come from the table itself. From another machine they do not: SQLite's write-ahead log
must not be opened by two machines at once. The process that writes the table therefore also writes the counts, at most
once a second, to a small file. Nothing depends on that file: a count that could not be written is left out.
"""

import contextlib
import json
import os
import sqlite3
import time
from pathlib import Path
from typing import NamedTuple

from unle.errors import StoreError

SECONDS_BETWEEN_WRITES = 1.0
COUNTS = "SELECT round, count(*), sum(1 - valid), sum(seconds) FROM simulations GROUP BY round ORDER BY round"


class RoundCount(NamedTuple):
    """How far the simulations of one round are."""

    round: int  # its number
    done: int  # simulations in the table
    invalid: int  # of them
    seconds: float  # that they took together


class ProgressFile:
    """The counts of every round, kept up to date in a file.

    Args:
        path: of the file.
        counts: what the table holds already.
    """

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
    """Return the counts of every round in a simulation table; none if the file does not exist yet.

    Raises:
        StoreError: the file is something else, or cannot be read.
    """
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
