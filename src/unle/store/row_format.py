"""The bytes of a stored simulation: theta, x, seconds and a check sum, eight bytes each, little-endian.

SQLite notices damage to the structure of its file, but not a changed number inside a row. The check sum finds it. It is
a sum of the 64-bit words of the row, each multiplied by an odd number of its own, modulo 2^64,

    check = sum_j c_j w_j  mod 2^64,      w = (round, id, valid, seconds, reason, dim x, theta_1 ..., x_1 ...).

A flip of bit b changes the sum by c_j 2^b, which is never zero. Other damage is missed with probability 2^-64. This
guards against accidents, not against forgery.

`settle_x_width` says which length of x is the right one, when a simulator returned several.  Simulations arrive in the
order in which the workers finish, and until all are there the first one decides.  At the end the majority decides, so
that the result is the same for any number of workers.
"""

import zlib
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from jaxtyping import Float, Int

from unle.store.database import Database

NO_DATA = -1  # the width of x where the simulator returned nothing
_TAIL = 2  # numbers behind theta and x: seconds and check sum
_HEAD_WORDS, _X_POSITION = 6, 1 << 20  # in the sum, theta comes after six words, and x far behind it
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
# Rows whose only fault is their length, and the valid ones.
_CANDIDATES = "round = ? AND width >= 0 AND (valid OR reason LIKE 'wrong length:%')"


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

    Raises:
        ValueError: a row has another length than these widths, or its check sum does not fit.
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
