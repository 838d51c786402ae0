"""A uniform random sample of a table that does not fit in memory, in one pass and in bounded memory.

Every row has a hash of its name (round, id) and of a seed, uniform on the 64-bit numbers. The rows with the smallest
hashes are a uniform sample without replacement. The sample does not depend on the order of the rows, nor on how the
table is cut. A later pass over the table can tell from the hash of a row whether it was in the sample.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import UInt

from unle.store.reading import StoredRows

SURPLUS = 1.25  # the sample is cut back when it has grown by this factor


def row_hashes(rows: StoredRows, seed: Sequence[int]) -> UInt[np.ndarray, " n"]:
    """Return the hash of every row; other seeds give independent hashes."""
    rounds, position = np.unique(rows.round, return_inverse=True)
    states = [np.random.SeedSequence([*seed, int(number)]).generate_state(1, np.uint64)[0] for number in rounds]
    start = np.array(states, dtype=np.uint64)[position] if len(rounds) else np.empty(0, dtype=np.uint64)
    with np.errstate(over="ignore"):  # SplitMix64: a counter, and two rounds of multiply and xor-shift
        z = start + (rows.id.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


class Reservoir:
    """The rows with the smallest hashes among all that were offered.

    Args:
        size: most rows to keep.
        seed: of the hashes.
    """

    def __init__(self, size: int, seed: Sequence[int]):
        self._size, self._seed = size, tuple(seed)
        self._parts: list[StoredRows] = []
        self._hashes: list[np.ndarray] = []
        self._limit = np.iinfo(np.uint64).max  # rows with larger hashes cannot enter any more

    def offer(self, rows: StoredRows) -> None:
        """Take those of the rows whose hashes are small enough."""
        hashes = row_hashes(rows, self._seed)
        small = np.flatnonzero(hashes <= self._limit)
        if len(small):
            self._parts.append(rows.take(small))
            self._hashes.append(hashes[small])
        if sum(map(len, self._hashes)) > SURPLUS * self._size:
            self._cut_back()

    def sample(self) -> tuple[StoredRows, UInt[np.ndarray, " n"]]:
        """Return the sample and its hashes, in the order of the hashes, which is a random one."""
        self._cut_back()
        hashes = self._hashes[0]
        order = np.argsort(hashes, kind="stable")
        return self._parts[0].take(order), hashes[order]

    def _cut_back(self) -> None:
        rows, hashes = StoredRows.concatenate(self._parts), np.concatenate([np.empty(0, np.uint64), *self._hashes])
        if len(hashes) > self._size:
            kept = np.sort(np.argpartition(hashes, self._size - 1)[: self._size])
            rows, hashes = rows.take(kept), hashes[kept]
            self._limit = hashes.max()
        self._parts, self._hashes = [rows], [hashes]
