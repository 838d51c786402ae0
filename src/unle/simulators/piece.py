"""Simulating a piece of work, one row after the other: the part that runs where the simulator runs.

Each simulation has its own random generator, see `unle.simulators.seeding`. A simulator that fails costs one row:
whatever it raises or returns becomes either a data vector or a reason.

Example:
    >>> import numpy as np
    >>> from unle.simulators import batched
    >>> @batched
    ... def simulator(theta, rng):  # theta: (n, 2)
    ...     return theta + 0.1 * rng.normal(size=theta.shape)
"""

import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from unle.simulators.outputs import Outcome, WrongResult, explainer, flatten, flatten_rows, reason_of
from unle.simulators.seeding import generator, generators

# Rows per call of a batched simulator. The same on every machine: the seed of a call is that of its first row.
BLOCK_ROWS = 256


@dataclass(frozen=True)
class Batched:
    """A vectorised simulator; made by `batched`.

    Attributes:
        function: takes theta (n, dim) and a numpy generator, returns x (n, dim_x).
    """

    function: Callable

    @property
    def explain(self) -> Callable | None:
        """The function's own method that explains data with NaN, if it has one."""
        return getattr(self.function, "explain", None)

    def __call__(self, theta: Any, rng: np.random.Generator) -> Any:
        """Call the function."""
        return self.function(theta, rng)


def batched(function: Callable) -> Batched:
    """Declare a simulator that works on many parameter vectors at once.

    It is called with up to 256 rows at a time. When a call fails, its rows are tried one by one, so that only
    those that cannot be simulated become invalid.

    Args:
        function: takes theta, shape (n, dim), and a numpy generator; returns x, shape (n, dim_x).

    Returns:
        A simulator for `simulate`.

    Example:
        >>> import unle
        >>> simulator = unle.batched(lambda theta, rng: theta + 0.1 * rng.normal(size=theta.shape))
        >>> unle.simulate(simulator, unle.Prior.uniform(low=[-1.0], high=[1.0]), 1000, seed=0).x.shape
        (1000, 1)
    """
    return Batched(function)


class Piece(NamedTuple):
    """Some simulations of one round.

    Attributes:
        theta: parameters, one row per simulation.
        ids: the number of each simulation in its round.
        seed: of the run.
        round: of the run.
    """

    theta: Float[np.ndarray, "n dim"]
    ids: Int[np.ndarray, " n"]
    seed: int
    round: int

    def take(self, positions: Int[np.ndarray, " m"] | slice) -> "Piece":
        """Return a part of the piece."""
        return self._replace(theta=self.theta[positions], ids=self.ids[positions])

    def generators(self) -> Iterator[np.random.Generator]:
        """Yield the random generator of each simulation."""
        return generators(self.seed, self.round, self.ids)


def run_piece(simulator: Callable, piece: Piece, *, alone: bool = False) -> Iterator[list[Outcome]]:
    """Simulate, and yield outcomes as they are finished: one at a time, or, for a batched simulator, a block.

    Args:
        simulator: takes one parameter vector and a generator, or is `Batched`; then the piece must be one block.
        piece: the simulations.
        alone: simulate each row by itself, also those of a batched simulator.
    """
    if isinstance(simulator, Batched) and not alone:
        yield _run_block(simulator, piece)
    else:
        yield from ([_run_row(simulator, *row)] for row in zip(piece.theta, piece.generators(), strict=True))


def _run_row(simulator: Callable, theta: np.ndarray, rng: np.random.Generator) -> Outcome:
    theta = theta.copy()  # a simulator may change its argument
    start = time.perf_counter()
    try:
        if isinstance(simulator, Batched):
            rows, names = flatten_rows(simulator(theta[None], rng), 1)
            x = rows[0]
        else:
            x, names = flatten(simulator(theta, rng))
    except WrongResult as error:
        return Outcome(None, str(error), time.perf_counter() - start)
    except (Exception, SystemExit) as error:  # a simulator that calls sys.exit() has failed, too
        return Outcome(None, reason_of(error), time.perf_counter() - start, traceback.format_exc())
    seconds = time.perf_counter() - start
    return Outcome(x, "" if np.isfinite(x).all() else explainer(simulator)(x), seconds, names=names)


def _run_block(simulator: Batched, piece: Piece) -> list[Outcome]:
    rng = generator(piece.seed, piece.round, int(piece.ids[0]))  # of the first row; blocks always have the same rows
    start = time.perf_counter()
    try:
        x, names = flatten_rows(simulator(piece.theta.copy(), rng), len(piece.ids))
    except (Exception, SystemExit):
        # One bad parameter vector must not cost the whole block: find out which rows fail, each by itself.
        return [_run_row(simulator, *row) for row in zip(piece.theta, piece.generators(), strict=True)]
    return outcomes_of_rows(simulator, x, names, time.perf_counter() - start)


def outcomes_of_rows(
    simulator: Any, x: Float[np.ndarray, "n dim_x"], names: tuple[str, ...], seconds: float, worker: str = ""
) -> list[Outcome]:
    """Return the outcomes of simulations that were made together, in so many seconds."""
    explain, each = explainer(simulator), seconds / len(x)
    return [
        Outcome(row, "" if good.all() else explain(row), each, names=names, worker=worker)
        for row, good in zip(x, np.isfinite(x), strict=True)
    ]
