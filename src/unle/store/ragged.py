"""Vectors of unequal length in two arrays: what simulators return, before anybody has decided what is valid.

Most data vectors have one length. A failed simulation has none, and a faulty one may have another. Two flat arrays
hold all of these, travel between processes at the speed of a copy, and become a matrix without a loop.

Example:
    >>> import numpy as np
    >>> from unle.store.ragged import Ragged
    >>> vectors = Ragged.of([np.array([1.0, 2.0]), None, np.array([5.0])])
    >>> vectors.lengths.tolist(), vectors.matrix(2).tolist()
    ([2, -1, 1], [[1.0, 2.0], [nan, nan], [nan, nan]])
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

NOTHING = -1  # the length of what did not come back


@dataclass(frozen=True)
class Ragged:
    """Some vectors, one after the other.

    Attributes:
        values: all entries.
        lengths: the length of each vector; -1 where there is none.
    """

    values: Float[np.ndarray, " total"]
    lengths: Int[np.ndarray, " n"]

    @classmethod
    def of(cls, vectors: Any) -> "Ragged":
        """Take a matrix, one vector per row, or a sequence of vectors and Nones."""
        if isinstance(vectors, Ragged):
            return vectors
        if isinstance(vectors, np.ndarray) and vectors.ndim == 2:
            lengths = np.full(len(vectors), vectors.shape[1], dtype=np.int64)
            return cls(np.ascontiguousarray(vectors, dtype="<f8").ravel(), lengths)
        lengths = np.array([NOTHING if v is None else len(v) for v in vectors], dtype=np.int64)
        there = [np.asarray(v, dtype="<f8") for v in vectors if v is not None]
        return cls(np.concatenate(there) if there else np.empty(0), lengths)

    @classmethod
    def from_bytes(cls, blobs: Sequence[bytes | None]) -> "Ragged":
        """Take vectors as the bytes of their float64 entries.

        Raises:
            ValueError: a length is not a multiple of eight.
        """
        there = [blob for blob in blobs if blob is not None]
        sizes = np.fromiter(map(len, there), np.int64, len(there))
        if (sizes % 8).any():
            raise ValueError("a vector is not made of whole numbers of eight bytes")
        lengths = sizes // 8
        if len(there) < len(blobs):
            lengths = np.full(len(blobs), NOTHING, dtype=np.int64)
            lengths[[blob is not None for blob in blobs]] = sizes // 8
        return cls(np.frombuffer(b"".join(there), dtype="<f8"), lengths)

    @classmethod
    def joined(cls, parts: Sequence["Ragged"]) -> "Ragged":
        """Put several one after the other."""
        if not parts:
            return cls(np.empty(0), np.empty(0, dtype=np.int64))
        return cls(np.concatenate([p.values for p in parts]), np.concatenate([p.lengths for p in parts]))

    def __len__(self) -> int:
        return len(self.lengths)

    def bounds(self) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
        """Return where each vector begins and ends among the values."""
        ends = np.cumsum(np.maximum(self.lengths, 0))
        return ends - np.maximum(self.lengths, 0), ends

    def to_list(self) -> list[np.ndarray | None]:
        """Return the vectors one by one; None where there is none."""
        starts, ends = self.bounds()
        return [
            self.values[a:b] if length >= 0 else None for a, b, length in zip(starts, ends, self.lengths, strict=True)
        ]

    def to_bytes(self) -> list[bytes | None]:
        """Return each vector as the bytes of its entries; None where there is none."""
        content = np.ascontiguousarray(self.values, dtype="<f8").tobytes()
        starts, ends = self.bounds()
        return [
            content[8 * a : 8 * b] if length >= 0 else None
            for a, b, length in zip(starts.tolist(), ends.tolist(), self.lengths.tolist(), strict=True)
        ]

    def matrix(self, width: int) -> Float[np.ndarray, "n width"]:
        """Return one row per vector; NaN where a vector has another length than `width`."""
        fitting = self.lengths == width
        if fitting.all():
            return self.values.reshape(len(self), width)
        matrix = np.full((len(self), width), np.nan)
        starts, _ = self.bounds()
        matrix[fitting] = self.values[starts[fitting, None] + np.arange(width)]
        return matrix

    def common_length(self) -> int:
        """Return the most frequent length, the smaller one of two; 0 if there are no vectors at all."""
        lengths, counts = np.unique(self.lengths[self.lengths >= 0], return_counts=True)
        return int(lengths[np.argmax(counts)]) if len(lengths) else 0
