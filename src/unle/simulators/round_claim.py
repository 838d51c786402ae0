"""What a round in a store is made of, and how its rows are cut into the blocks of a vectorised simulator.

A round belongs to one seed and to one list of parameters.  It may be topped up: asked for again with more parameters
that begin with the known ones.  The rows that are there stay as they are.  A block of a vectorised simulator shares one
random generator, so that rows of a block that was cut short cannot be filled up from it: a later row could repeat the
random numbers of an earlier one.  Each top-up begins a block of its own instead.
"""

import hashlib
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from unle.errors import StoreError
from unle.store import SimulationStore


class Blocks(NamedTuple):
    """The blocks of a round.

    Attributes:
        size: most rows of one block.
        n: rows of the round.
        starts: numbers of the rows at which the round was topped up.
    """

    size: int
    n: int
    starts: tuple[int, ...] = ()

    def of(self, id: int) -> Int[np.ndarray, " rows"]:
        """Return the numbers of the simulations in the block of one of them.

        Example:
            >>> Blocks(256, 600, (300,)).of(290)[[0, -1]].tolist(), Blocks(256, 600, (300,)).of(310)[[0, -1]].tolist()
            ([256, 299], [300, 511])
        """
        first = id // self.size * self.size
        start = max([first, *(start for start in self.starts if start <= id)])
        stop = min([first + self.size, self.n, *(start for start in self.starts if start > id)])
        return np.arange(start, stop)

    def firsts(self, ids: Int[np.ndarray, " n"]) -> list[int]:
        """Return the first row of every block that holds one of these."""
        if self.size == 1:
            return ids.tolist()
        edges = np.unique([*range(0, self.n, self.size), *self.starts])
        return np.unique(edges[np.searchsorted(edges, ids, side="right") - 1]).tolist()


def claim_round(store: SimulationStore, theta: Float[np.ndarray, "n dim"], seed: int, round: int) -> tuple[int, ...]:
    """Write down what a round is made of; refuse to mix it with another.

    Returns:
        The rows at which the round was topped up.

    Raises:
        StoreError: the store holds other simulations of this round.
    """
    name, n = f"round {round}", len(theta)
    known = store.fact(name)
    if known is None and store.count(round):
        raise StoreError(f"{store.path} already holds simulations of round {round}, from elsewhere; use another round.")
    wanted = {"seed": int(seed), "n": n, "theta_sha256": _digest(theta)}
    starts = [] if known is None else known.get("starts", [])
    if known is not None and any(known.get(key) != value for key, value in wanted.items()):
        begins_alike = n > known["n"] and known["theta_sha256"] == _digest(theta[: known["n"]])
        if known["seed"] != seed or not begins_alike or store.count() > store.count(round):
            raise StoreError(f"{store.path} already holds other simulations of round {round}: {_other(known, wanted)}.")
        starts = [*starts, known["n"]]
    if known is None or known["n"] != n:
        store.remember(name, wanted | ({"starts": starts} if starts else {}))
    return tuple(starts)


def _other(known: dict, wanted: dict) -> str:
    if known["seed"] == wanted["seed"] and wanted["n"] < known["n"]:
        return f"{known['n']} of them, and {wanted['n']} were asked for; try n={known['n']}, or another file"
    return "another " + ", ".join(key.removesuffix("_sha256") for key in wanted if known.get(key) != wanted[key])


def _digest(theta: np.ndarray) -> str:
    return hashlib.sha256(theta.tobytes()).hexdigest()
