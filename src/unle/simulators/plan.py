"""Which simulations to do next, and how many at once.

A piece of work should take about a second: long enough that handing it over costs nothing, short enough that a lost
one does not hurt, and that all workers finish together. How long a simulation takes is learned on the way; the first
pieces are single simulations.
"""

from collections import deque

import numpy as np

SECONDS = 1.0  # that a piece of work should take
LARGEST = 10_000  # simulations in one piece
GROWTH = 8  # a piece is at most so many times larger than the last one: the first timings may mislead


class Plan:
    """The simulations that are still to do.

    Args:
        ids: their numbers, ascending.
        block: the rows of a batched simulator's block; None for simulators of single rows.
    """

    def __init__(self, ids: np.ndarray, block: int | None):
        self._block = block
        self._ids = ids
        self._next = 0
        self._again: deque[tuple[np.ndarray, int]] = deque()
        self._size, self._seconds = 1.0, None

    def __len__(self) -> int:
        return len(self._ids) - self._next + sum(len(ids) for ids, _ in self._again)

    def take(self, slots: int) -> tuple[np.ndarray, int]:
        """Return the numbers of the next piece of work, and how often it was tried before."""
        if self._again:
            return self._again.popleft()
        if self._block is not None:
            first = int(self._ids[self._next]) // self._block
            stop = int(np.searchsorted(self._ids, (first + 1) * self._block))
        else:
            left = len(self._ids) - self._next
            share = -(-left // (2 * slots))  # towards the end pieces become smaller, and workers finish together
            stop = self._next + max(1, min(int(self._size), share, LARGEST))
        ids, self._next = self._ids[self._next : stop], stop
        return ids, 0

    def learn(self, ids: np.ndarray, seconds: float) -> None:
        """Take note that these simulations took so long in all."""
        each = max(seconds / len(ids), 1e-7)
        self._seconds = each if self._seconds is None else 0.7 * self._seconds + 0.3 * each
        self._size = min(SECONDS / self._seconds, GROWTH * max(self._size, 1.0))

    def retry(self, ids: np.ndarray, tries: int) -> None:
        """Do these again: one by one, so that a bad one is found; a block stays together."""
        pieces = [ids] if self._block is not None else [ids[i : i + 1] for i in range(len(ids))]
        self._again.extend((piece, tries + 1) for piece in pieces)
