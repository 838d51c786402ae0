"""All numbers of a stored simulation in one blob: theta, x, seconds, check sum, eight bytes each, little-endian."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from unle.store.ragged import NOTHING, Ragged


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


def unpack(blobs: Sequence[bytes], dim: int, widths: Int[np.ndarray, " n"]) -> Unpacked:
    """Return the numbers of rows whose theta has length `dim` and whose x has these lengths (-1: none).

    Raises:
        ValueError: a blob has another length.
    """
    n = len(blobs)
    if n and (widths == widths[0]).all():
        rows = _matrix(blobs, dim + max(int(widths[0]), 0) + 2)
        theta, x, tail = rows[:, :dim], Ragged(rows[:, dim:-2].ravel(), widths), rows[:, -2:]
    else:
        theta, tail = np.empty((n, dim)), np.empty((n, 2))
        x = Ragged(np.empty(int(np.maximum(widths, 0).sum())), widths)
        starts, _ = x.bounds()
        for width in np.unique(widths).tolist():
            there = np.flatnonzero(widths == width)
            rows = _matrix([blobs[i] for i in there], dim + max(width, 0) + 2)
            theta[there], tail[there] = rows[:, :dim], rows[:, -2:]
            if width > NOTHING:
                x.values[starts[there, None] + np.arange(width)] = rows[:, dim:-2]
    seconds, checks = np.ascontiguousarray(tail[:, 0]), np.ascontiguousarray(tail[:, 1]).view("<i8")
    return Unpacked(Ragged.of(theta), x, seconds, checks)


def _matrix(blobs: Sequence[bytes], width: int) -> np.ndarray:
    if {8 * width} != set(map(len, blobs)):
        raise ValueError("a row has another length than it should")
    return np.frombuffer(b"".join(blobs), dtype="<f8").reshape(len(blobs), width)
