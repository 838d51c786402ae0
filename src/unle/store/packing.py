"""All numbers of a stored simulation in one blob: theta, x, seconds, check sum, eight bytes each, little-endian."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from unle.store.ragged import NOTHING, Ragged

_TAIL = 2  # numbers behind theta and x: seconds and check sum


class Alike(NamedTuple):
    """Rows whose data vectors have one length.

    Attributes:
        places: of these rows among all rows.
        width: length of x; -1 for none.
        content: their blobs, one after the other.
    """

    places: Int[np.ndarray, " m"]
    width: int
    content: bytes


class Unpacked(NamedTuple):
    """The numbers of some rows.

    Attributes:
        theta: parameters.
        x: data.
        seconds: of each simulation.
        checks: their check sums.
    """

    theta: Ragged
    x: Ragged
    seconds: Float[np.ndarray, " n"]
    checks: Int[np.ndarray, " n"]


def pack(theta: Ragged, x: Ragged, seconds: np.ndarray, checks: np.ndarray) -> list[bytes]:
    """Return one blob per row."""
    tail = np.stack([seconds.astype("<f8"), checks.astype("<i8").view("<f8")], axis=1).tobytes()
    pairs = zip(theta.to_bytes(), x.to_bytes(), strict=True)
    return [(t or b"") + (v or b"") + tail[16 * i : 16 * i + 16] for i, (t, v) in enumerate(pairs)]


def packed_size(dim: int, width: int) -> int:
    """Return the number of bytes of one row."""
    return 8 * (dim + max(width, 0) + _TAIL)


def unpack(groups: Sequence[Alike], dim: int) -> Unpacked:
    """Return the numbers of all rows, in the order of their places.

    Args:
        groups: all rows, by the length of x; together their places are 0, 1, ..., n - 1.
        dim: length of theta.

    Raises:
        ValueError: the blobs of a group have another length than its number of rows says.
    """
    if len(groups) == 1:  # as nearly always: no row has to find its place
        rows = _matrix(groups[0], dim)
        theta, tail = rows[:, :dim], rows[:, -_TAIL:]
        x = Ragged(rows[:, dim:-_TAIL].ravel(), np.full(len(rows), groups[0].width, dtype=np.int64))
    else:
        n = sum(len(group.places) for group in groups)
        theta, tail, widths = np.empty((n, dim)), np.empty((n, _TAIL)), np.empty(n, dtype=np.int64)
        for group in groups:
            widths[group.places] = group.width
        x = Ragged(np.empty(int(np.maximum(widths, 0).sum())), widths)
        starts, _ = x.bounds()
        for group in groups:
            rows = _matrix(group, dim)
            theta[group.places], tail[group.places] = rows[:, :dim], rows[:, -_TAIL:]
            if group.width > NOTHING:
                x.values[starts[group.places, None] + np.arange(group.width)] = rows[:, dim:-_TAIL]
    seconds, checks = np.ascontiguousarray(tail[:, 0]), np.ascontiguousarray(tail[:, 1]).view("<i8")
    return Unpacked(Ragged.of(theta), x, seconds, checks)


def _matrix(group: Alike, dim: int) -> np.ndarray:
    size = packed_size(dim, group.width)
    if len(group.content) != size * len(group.places):
        raise ValueError("a row has another length than it should")
    return np.frombuffer(group.content, dtype="<f8").reshape(len(group.places), size // 8)
