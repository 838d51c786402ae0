"""Finished simulations on their way from whoever simulated to the driver."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from unle.store.ragged import Ragged


class Row(NamedTuple):
    """The outcome of one simulation.

    Attributes:
        x: what came back, as a vector; None if nothing usable did.
        reason: the empty string, or why the row is not valid.
        seconds: the time it took.
        trace: the traceback of an exception.
        names: of the entries of x, if the simulator named them.
    """

    x: Float[np.ndarray, "dim_x"] | None
    reason: str
    seconds: float
    trace: str | None = None
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Chunk:
    """The outcomes of several simulations, packed for the journey: few large objects rather than many small ones.

    Attributes:
        x: data vectors.
        reasons: one per simulation; the empty string where there is nothing to complain about.
        seconds: the time of each.
        trace: the first traceback among them.
        names: of the entries of x.
        worker: who did them.
    """

    x: Ragged
    reasons: list[str]
    seconds: Float[np.ndarray, " n"]
    trace: str | None = None
    names: tuple[str, ...] = ()
    worker: str = ""

    @classmethod
    def of(cls, rows: Sequence[Row], worker: str = "") -> "Chunk":
        """Pack rows. Those whose names differ from the first ones become invalid."""
        names = next((row.names for row in rows if row.x is not None), ())
        reasons = [row.reason or other_names(row.names, names) if row.x is not None else row.reason for row in rows]
        return cls(
            x=Ragged.of([row.x for row in rows]),
            reasons=reasons,
            seconds=np.array([row.seconds for row in rows], dtype=np.float64),
            trace=next((row.trace for row in rows if row.trace), None),
            names=names,
            worker=worker,
        )

    @classmethod
    def joined(cls, parts: Sequence["Chunk"]) -> "Chunk":
        """Put several under one another."""
        names = next((part.names for part in parts if part.any_x), ())
        return cls(
            x=Ragged.joined([part.x for part in parts]),
            reasons=[reason for part in parts for reason in part.renamed(names).reasons],
            seconds=np.concatenate([part.seconds for part in parts]),
            trace=next((part.trace for part in parts if part.trace), None),
            names=names,
            worker=parts[0].worker,
        )

    def __len__(self) -> int:
        return len(self.reasons)

    @property
    def any_x(self) -> bool:
        """Whether any data came back."""
        return bool((self.x.lengths >= 0).any())

    def part(self, rows: np.ndarray) -> "Chunk":
        """Return some of the simulations, given by a mask or by positions."""
        positions = np.arange(len(self))[rows]
        vectors = self.x.to_list()
        return Chunk(
            Ragged.of([vectors[i] for i in positions]),
            [self.reasons[i] for i in positions],
            self.seconds[positions],
            self.trace,
            self.names,
            self.worker,
        )

    def renamed(self, names: tuple[str, ...]) -> "Chunk":
        """Return the chunk as one of a run whose data have these names: rows with others are invalid."""
        complaint = other_names(self.names, names)
        if not complaint or not self.any_x:
            return self
        reasons = [
            reason or (complaint if length >= 0 else "")
            for reason, length in zip(self.reasons, self.x.lengths, strict=True)
        ]
        return Chunk(self.x, reasons, self.seconds, self.trace, names, self.worker)


def other_names(got: tuple[str, ...], wanted: tuple[str, ...]) -> str:
    """Return the complaint about names that are not the wanted ones, or the empty string."""
    if got == wanted:
        return ""
    odd = sorted(set(got) ^ set(wanted))
    return f"other names: {', '.join(odd)[:120]}" if odd else "other names: the same in another order"
