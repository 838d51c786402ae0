"""The one writer: takes finished simulations in any order, decides which are valid, and stores them."""

from collections import Counter

import numpy as np
from jaxtyping import Float

from unle.errors import InputError
from unle.simulators.chunk import Chunk
from unle.simulators.record import count_words
from unle.store.ragged import Ragged
from unle.store.settling import wrong_length
from unle.store.simulations import SimulationStore

FIRST_TRIES = 100  # when all of these fail, the simulator is broken rather than unlucky
MANY_TRIES = 2000  # the same where the simulator explains its failures: they are part of the model, and may be the rule


class Book:
    """The simulations of one round on their way into the store.

    Args:
        theta: all parameters of the round.
        round: the round.
        store: where the rows go.
        first_tries: give up when none of so many is valid.
    """

    def __init__(
        self,
        theta: Float[np.ndarray, "n dim"],
        round: int,
        store: SimulationStore,
        *,
        first_tries: int = FIRST_TRIES,
    ):
        self._first_tries = first_tries
        self._theta, self._round, self._store = theta, round, store
        self._width = store.width(round)  # of x, until `settle` lets the majority decide
        names = store.fact("x_names")
        self._names = tuple(names) if names else () if self.any_valid else None
        self._trace = store.fact(f"traceback of round {round}")
        self._waiting: list[tuple[np.ndarray, Chunk]] = []
        self._seen, self._invalid = 0, Counter()
        self._example = ""

    @property
    def any_valid(self) -> bool:
        """Whether there is a valid simulation in this round."""
        return self._width is not None

    def add(self, ids: np.ndarray, chunk: Chunk) -> None:
        """Take the outcomes of these simulations; `write` stores them."""
        if self._names is None and chunk.any_x:
            self._names = chunk.names
            self._store.remember("x_names", list(chunk.names))
        chunk = chunk.renamed(self._names or ())
        reasons = self._lengths_compared(chunk)
        self._example = self._example or next((reason for reason in reasons if reason), "")
        if self._trace is None and chunk.trace is not None:
            self._trace = chunk.trace
            self._store.remember(f"traceback of round {self._round}", chunk.trace)
        self._seen += len(ids)
        self._invalid.update(reason.partition(":")[0] for reason in reasons if reason)
        self._waiting.append((ids, Chunk(chunk.x, reasons, chunk.seconds, worker=chunk.worker)))

    def write(self) -> None:
        """Store what was added, in one transaction."""
        if not self._waiting:
            return
        ids = np.concatenate([ids for ids, _ in self._waiting])
        chunks = [chunk for _, chunk in self._waiting]
        self._waiting = []
        self._store.append(
            ids=ids,
            theta=self._theta[ids],
            x=Ragged.joined([chunk.x for chunk in chunks]),
            reasons=[reason for chunk in chunks for reason in chunk.reasons],
            seconds=np.concatenate([chunk.seconds for chunk in chunks]),
            round=self._round,
            worker=[chunk.worker for chunk in chunks for _ in chunk.reasons],
        )

    def note(self) -> str:
        """Return a few words for a progress bar."""
        return f"{self._invalid.total()} invalid" if self._invalid else ""

    def check(self) -> None:
        """Give up if everything fails.

        Raises:
            InputError: the first simulations all failed; the message says how.
        """
        if self.any_valid or self._seen < self._first_tries:
            return
        self.write()
        trace = f"\n\nThe first traceback:\n{self._trace}" if self._trace else ""
        raise InputError(
            f"expected some valid simulations; got none among the first {self._seen} "
            f"({count_words(self._invalid)}). The first one: {self._example}. "
            f"Try unle.dry_run(simulator, prior), or the simulator by itself.{trace}"
        )

    def _lengths_compared(self, chunk: Chunk) -> list[str]:
        """Return the reasons, with those of vectors that are longer or shorter than the first one."""
        good = np.fromiter((not reason for reason in chunk.reasons), bool, len(chunk.reasons))
        if self._width is None and good.any():
            self._width = int(chunk.x.lengths[np.argmax(good)])
        odd = np.flatnonzero(good & (chunk.x.lengths != self._width))
        if not len(odd):
            return chunk.reasons
        reasons = list(chunk.reasons)
        for i in odd:
            reasons[i] = wrong_length(int(chunk.x.lengths[i]), self._width or 0)
        return reasons
