"""What all sequential rounds have in common, whatever they fit: `propose`, simulate, `add`, and again."""

import abc
from typing import Any

import numpy as np
from jaxtyping import Float

from unle.methods.history import Round
from unle.simulators import Simulations


class AbstractRounds(abc.ABC):
    """The state of a sequential inference without its simulator.

    Attributes:
        sizes: simulations of each round.
        seed: fixes everything but the simulations.
        x_o: the observation, in rows.
        history: what the rounds so far did.
        carried: what a round leaves for the next one, and what is kept of it on disk; or None.
    """

    sizes: list[int]
    seed: int
    x_o: Float[np.ndarray, "rows dim_x"]
    history: list[Round]
    carried: Any

    @property
    def number(self) -> int:
        """The round whose simulations are awaited."""
        return len(self.history)

    @property
    def is_last(self) -> bool:
        """Whether the budget ends with the round whose simulations are awaited."""
        return self.number == len(self.sizes) - 1

    @property
    @abc.abstractmethod
    def simulations(self) -> Simulations:
        """Of all rounds so far."""

    @property
    @abc.abstractmethod
    def proposals(self) -> Float[np.ndarray, "n dim"]:
        """Draws that the last round made for the next one."""

    @abc.abstractmethod
    def propose(self) -> Float[np.ndarray, "n dim"]:
        """Return the parameters to simulate in this round; asked twice, the same."""

    @abc.abstractmethod
    def add(self, simulations: Any) -> Round:
        """Take the simulations of this round, fit them with all others, and prepare the next proposals."""

    @abc.abstractmethod
    def recall(self, simulations: Any, done: Round, proposals: Float[np.ndarray, "n dim"], carried: Any = None) -> None:
        """Take a round that was fitted before: its simulations, what it did, and the proposals it led to."""
