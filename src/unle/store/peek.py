"""A look at a run while somebody else works on it: counts only, nothing written, no lock taken."""

import sqlite3
from pathlib import Path
from typing import NamedTuple

from unle.errors import StoreError

COUNTS = "SELECT round, count(*), sum(1 - valid), sum(seconds) FROM simulations GROUP BY round ORDER BY round"


class RoundCount(NamedTuple):
    """How far the simulations of one round are.

    Attributes:
        round: its number.
        done: simulations in the table.
        invalid: of them.
        seconds: that they took together.
    """

    round: int
    done: int
    invalid: int
    seconds: float


def peek_simulations(path: str | Path) -> list[RoundCount]:
    """Return the counts of every round in a simulation store; nothing if the file does not exist yet.

    Raises:
        StoreError: the file is something else, or cannot be read.
    """
    path = Path(path)
    if not path.exists():
        return []
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=2.0)
        try:
            rows = connection.execute(COUNTS).fetchall()
        finally:
            connection.close()
    except sqlite3.Error as error:
        if "no such table" in str(error):  # made a moment ago, and still empty
            return []
        raise StoreError(f"{path} could not be read: {error}.") from None
    return [RoundCount(int(r), int(n), int(bad or 0), float(seconds or 0.0)) for r, n, bad, seconds in rows]
