"""A check sum for every stored simulation: a flipped bit on the disk is found, not trained on.

SQLite notices when the structure of its file is damaged, but not when a number inside a row is. The check sum of a row
is a sum of its 64-bit words, each multiplied by an odd number of its own, modulo 2^64,

    check = sum_j c_j w_j  mod 2^64,      w = (round, id, valid, seconds, reason, dim x, theta_1 ..., x_1 ...).

A flip of bit b changes it by c_j 2^b, which is never zero; of other damage one in 2^64 escapes. It is vectorised over
rows, and guards against accidents, not against forgers.
"""

import zlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from jaxtyping import Int

from unle.store.ragged import Ragged

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_HEAD, _FIRST_OF_X = 6, 1 << 20  # positions: six words before theta, and x far behind it


def row_checks(
    round: int,
    ids: np.ndarray,
    theta: Ragged,
    x: Ragged,
    valid: np.ndarray,
    seconds: np.ndarray,
    reasons: Sequence[str],
) -> Int[np.ndarray, " n"]:
    """Return the check sum of each row.

    Args:
        round: of all rows.
        ids: number of each simulation.
        theta: parameters.
        x: data.
        valid: 0 or 1.
        seconds: the time each took.
        reasons: the reason of each invalid row, and empty strings.
    """
    n = len(ids)
    head = [
        np.full(n, round, dtype=np.int64).view(np.uint64),
        np.asarray(ids, dtype=np.int64).view(np.uint64),
        np.asarray(valid, dtype=np.uint64),
        np.ascontiguousarray(seconds, dtype="<f8").view(np.uint64),
        _texts(reasons),
        x.lengths.view(np.uint64),
    ]
    with np.errstate(over="ignore"):
        total = sum(word * odd for word, odd in zip(head, _odd(np.arange(_HEAD)), strict=True))
        return (total + _sums(theta, _HEAD) + _sums(x, _FIRST_OF_X)).view(np.int64)


def _odd(positions: np.ndarray) -> np.ndarray:
    return (positions.astype(np.uint64) + np.uint64(1)) * _GOLDEN | np.uint64(1)


def _sums(vectors: Ragged, first: int) -> np.ndarray:
    words = np.ascontiguousarray(vectors.values, dtype="<f8").view(np.uint64)
    n, width = len(vectors), int(vectors.lengths[0]) if len(vectors) else 0
    if len(words) == n * width and (vectors.lengths == width).all():  # as nearly always: a matrix
        return words.reshape(n, width) @ _odd(np.arange(first, first + width))
    starts, ends = vectors.bounds()
    place = np.arange(len(words), dtype=np.uint64) - np.repeat(starts, ends - starts).astype(np.uint64)
    running = np.zeros(len(words) + 1, dtype=np.uint64)
    np.cumsum(words * _odd(place + np.uint64(first)), out=running[1:])
    return running[ends] - running[starts]


def _texts(reasons: Sequence[str]) -> np.ndarray:
    words = np.full(len(reasons), _text(""), dtype=np.uint64)
    for i, reason in enumerate(reasons):  # few have one
        if reason:
            words[i] = _text(reason)
    return words


@lru_cache(maxsize=4096)
def _text(reason: str) -> int:
    return zlib.crc32(reason.encode())
