"""The one writer of a round: takes finished simulations in any order, decides which are valid, and stores them."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from unle.errors import InputError
from unle.simulators.outputs import Outcome, other_names
from unle.simulators.simulations import count_words
from unle.store import SimulationStore, wrong_length

FIRST_TRIES = 100  # when all of these fail, the simulator is broken rather than unlucky
FIRST_EXPLAINED_TRIES = 2000  # the same where the simulator explains its failures: they belong to the model


class Writer:
    """The simulations of one round on their way into the store.

    Args:
        theta: all parameters of the round.
        round: the round.
        store: where the rows go.
        first_tries: give up when none of so many is valid.
    """

    def __init__(self, theta: Float[np.ndarray, "n dim"], round: int, store: SimulationStore, *, first_tries: int):
        self._first_tries = first_tries
        self._theta, self._round, self._store = theta, round, store
        self._width = store.width(round)  # of x, until `settle_x_width` lets the majority decide
        names = store.fact("x_names")
        self._names = tuple(names) if names else () if self.any_valid else None
        self._traceback = store.fact(f"traceback of round {round}")
        self._waiting: list[tuple[int, Outcome]] = []
        self._seen, self._invalid, self._example = 0, Counter(), ""

    @property
    def any_valid(self) -> bool:
        """Whether there is a valid simulation in this round."""
        return self._width is not None

    def add(self, ids: Sequence[int] | np.ndarray, outcomes: Sequence[Outcome]) -> None:
        """Take the outcomes of these simulations; `write` stores them."""
        for i, outcome in zip(ids, outcomes, strict=True):
            reason = outcome.reason if outcome.x is None else self._invalid_reason(outcome.x, outcome)
            if reason:
                self._invalid[reason.partition(":")[0]] += 1
                self._example = self._example or reason
            if outcome.traceback is not None and self._traceback is None:
                self._traceback = outcome.traceback
                self._store.remember(f"traceback of round {self._round}", outcome.traceback)
            self._waiting.append((int(i), outcome._replace(reason=reason)))
        self._seen += len(outcomes)

    def write(self) -> None:
        """Store what was added, in one transaction."""
        if not self._waiting:
            return
        numbers, outcomes = zip(*self._waiting, strict=True)
        self._waiting = []
        ids = np.array(numbers)
        self._store.append(
            ids=ids,
            theta=self._theta[ids],
            x=[outcome.x for outcome in outcomes],
            reasons=[outcome.reason for outcome in outcomes],
            seconds=[outcome.seconds for outcome in outcomes],
            round=self._round,
            worker=[outcome.worker for outcome in outcomes],
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
        trace = f"\n\nThe first traceback:\n{self._traceback}" if self._traceback else ""
        raise InputError(
            f"expected some valid simulations; got none among the first {self._seen} "
            f"({count_words(self._invalid)}). The first one: {self._example}. "
            f"Try unle.dry_run(simulator, prior), or the simulator by itself.{trace}"
        )

    def _invalid_reason(self, x: np.ndarray, outcome: Outcome) -> str:
        """Return why data are not valid: the outcome's own reason, other names, or another length than the first."""
        if self._names is None:
            self._names = outcome.names
            self._store.remember("x_names", list(outcome.names))
        if reason := outcome.reason or other_names(outcome.names, self._names):
            return reason
        if self._width is None:
            self._width = len(x)
        return "" if len(x) == self._width else wrong_length(len(x), self._width)
