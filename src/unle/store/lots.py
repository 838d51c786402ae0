"""A uniform random sample of a table that does not fit in memory, in one pass and in bounded memory.

Every row draws a lot: a hash of its name (round, id) and of a seed, uniform on the 64-bit numbers.  The rows with the
smallest lots are a uniform sample without replacement, whatever order the rows lie in, and the same one however the
table is cut.  Whoever reads the table again can tell from a row's lot whether it was in the sample.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int, UInt

from unle.store.reading import StoredRows

SURPLUS = 1.25  # the sample is cut back when it has grown by this factor


def lots(rows: StoredRows, seed: Sequence[int]) -> UInt[np.ndarray, " n"]:
    """Return the lot of every row.

    Args:
        rows: from the store.
        seed: other seeds give other lots, independent of these.
    """
    rounds, place = np.unique(rows.round, return_inverse=True)
    states = [np.random.SeedSequence([*seed, int(number)]).generate_state(1, np.uint64)[0] for number in rounds]
    start = np.array(states, dtype=np.uint64)[place] if len(rounds) else np.empty(0, dtype=np.uint64)
    with np.errstate(over="ignore"):  # SplitMix64: a counter, and two rounds of multiply and xor-shift
        z = start + (rows.id.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


class Reservoir:
    """The rows with the smallest lots among all that were offered.

    Args:
        size: most rows to keep.
        seed: of the lots.
    """

    def __init__(self, size: int, seed: Sequence[int]):
        self._size, self._seed = size, tuple(seed)
        self._parts: list[StoredRows] = []
        self._lots: list[np.ndarray] = []
        self._held = 0
        self._largest = np.iinfo(np.uint64).max  # of the lots that can still get in

    def offer(self, rows: StoredRows) -> None:
        """Take those of the rows whose lots are small enough."""
        drawn = lots(rows, self._seed)
        small = np.flatnonzero(drawn <= self._largest)
        if len(small):
            self._parts.append(chosen(rows, small))
            self._lots.append(drawn[small])
            self._held += len(small)
        if self._held > SURPLUS * self._size:
            self._cut_back()

    def sample(self) -> tuple[StoredRows, UInt[np.ndarray, " n"]]:
        """Return the sample and its lots, in the order of the lots, which is a random one."""
        self._cut_back()
        drawn = self._lots[0] if self._lots else np.empty(0, dtype=np.uint64)
        order = np.argsort(drawn, kind="stable")
        return chosen(joined(self._parts), order), drawn[order]

    def _cut_back(self) -> None:
        if not self._parts:
            return
        rows, drawn = joined(self._parts), np.concatenate(self._lots)
        if len(drawn) > self._size:
            kept = np.sort(np.argpartition(drawn, self._size - 1)[: self._size])
            rows, drawn = chosen(rows, kept), drawn[kept]
            self._largest = drawn.max()
        self._parts, self._lots, self._held = [rows], [drawn], len(drawn)


def chosen(rows: StoredRows, places: Int[np.ndarray, " m"]) -> StoredRows:
    """Return some of the rows."""
    reasons = tuple(rows.reasons[i] for i in places.tolist())
    arrays = {name: value[places] for name, value in rows._asdict().items() if name != "reasons"}
    return StoredRows(reasons=reasons, **arrays)


def joined(parts: Sequence[StoredRows]) -> StoredRows:
    """Put some rows under others."""
    if len(parts) == 1:
        return parts[0]
    arrays = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in StoredRows._fields
        if name != "reasons"
    }
    return StoredRows(reasons=tuple(reason for part in parts for reason in part.reasons), **arrays)
