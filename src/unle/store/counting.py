"""How many simulations there are, in a small file beside their table, for whoever watches from another machine.

SQLite's write-ahead log must not be opened by two machines at once.  So the process that writes the table also writes
its counts, at most once a second, to a file that anybody may read at any time.  Nothing depends on it: a count that
could not be written is left out.
"""

import contextlib
import json
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from unle.store.peek import RoundCount

SECONDS_BETWEEN = 1.0


class Counting:
    """The counts of every round, kept up to date in a file.

    Args:
        path: of the file.
        counts: what the table holds already.
    """

    def __init__(self, path: Path, counts: Iterable[RoundCount] = ()):
        self._path = path
        self._counts = {count.round: count for count in counts}
        self._written, self._is_behind = 0.0, False

    def add(self, round: int, valid: Sequence[bool], seconds: float) -> None:
        """Count a batch of rows of one round."""
        before = self._counts.get(round, RoundCount(round, 0, 0, 0.0))
        invalid = sum(not one for one in valid)
        self._counts[round] = RoundCount(
            round, before.done + len(valid), before.invalid + invalid, before.seconds + seconds
        )
        self._is_behind = True
        if time.monotonic() - self._written >= SECONDS_BETWEEN:
            self.write()

    def write(self) -> None:
        """Write the counts, if they have changed; in one go, so that no reader sees a part."""
        if not self._is_behind:
            return
        self._written, self._is_behind = time.monotonic(), False
        rows = [list(self._counts[number]) for number in sorted(self._counts)]
        beside = self._path.with_suffix(".new")
        with contextlib.suppress(OSError):
            beside.write_text(json.dumps(rows), encoding="utf-8")
            os.replace(beside, self._path)


def read_counts(path: Path) -> list[RoundCount]:
    """Return the counts that somebody wrote; none if there is no such file, or if it is something else."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        return [RoundCount(int(r), int(n), int(bad), float(seconds)) for r, n, bad, seconds in rows]
    except (OSError, ValueError, TypeError):
        return []
