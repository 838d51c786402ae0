"""Simulating a piece of work, one row after the other: the part that runs where the simulator runs.

A simulator that fails costs one row: whatever it raises or returns becomes either a vector of numbers, with names if it
has them, or the reason why there is none.

Each simulation has its own random generator, the same in any process, in any order, in whatever pieces.  Simulation
`id` of a round has the generator that NumPy makes from `SeedSequence(seed, spawn_key=(round, id))`.

Example:
    >>> from unle.simulators.piece import flatten
    >>> flatten({"mean": 0.5, "counts": [3, 4]})
    (array([0.5, 3. , 4. ]), ('mean', 'counts[0]', 'counts[1]'))
    >>> flatten([1, 2])
    (array([1., 2.]), ())
"""

import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from unle.arrays import name_of_entry

LONGEST_REASON = 200  # characters
# Rows per call of a batched simulator. The same on every machine: the seed of a call is that of its first row.
BLOCK_ROWS = 256


class Outcome(NamedTuple):
    """The outcome of one simulation."""

    x: Float[np.ndarray, "dim_x"] | None  # the data vector; None if nothing usable came back
    reason: str  # why the simulation is not valid; the empty string if it is
    seconds: float  # the time it took
    traceback: str | None = None  # of an exception
    names: tuple[str, ...] = ()  # of the entries of x, if the simulator named them
    worker: str = ""  # the process that simulated

    def __reduce__(self):
        """Pickle the bytes of x: five times as fast as pickling a small array."""
        return _outcome, (None if self.x is None else self.x.tobytes(), *self[1:])


def _outcome(content: bytes | None, *others: Any) -> Outcome:
    return Outcome(None if content is None else np.frombuffer(content), *others)


class WrongResult(Exception):
    """The simulator returned something that is not data; the message is the reason of an invalid row."""


def flatten(result: Any) -> tuple[Float[np.ndarray, "dim_x"], tuple[str, ...]]:
    """Return the result of one simulation as a vector, and one name per entry; no names for a plain vector.

    It may be a number, a vector, or a dictionary of numbers and arrays, in the order of its keys; a named tuple, and a
    table or a series of pandas that names its entries, are taken as dictionaries.
    """
    fields = _fields(result)
    if fields is None:
        x = np.atleast_1d(_numbers(result))
        if x.ndim != 1 or x.size == 0:
            raise WrongResult(
                f"wrong shape: expected one data vector; got an array of shape {x.shape}; try np.ravel(x), "
                "or @unle.batched if theta is to be a batch of rows"
            )
        return x, ()
    rows, names = _join({name: _numbers(value)[None] for name, value in fields.items()})
    return rows[0], names


def flatten_rows(result: Any, n: int) -> tuple[Float[np.ndarray, "n dim_x"], tuple[str, ...]]:
    """Return the result of n simulations, a matrix or a dictionary of arrays, as a matrix, and names of its columns."""
    fields = _fields(result)
    if fields is None:
        x = _numbers(result)
        if x.ndim != 2 or len(x) != n or x.size == 0:
            raise WrongResult(f"wrong shape: expected {n} rows, one per row of theta; got shape {x.shape}")
        return x, ()
    parts = {name: _numbers(value) for name, value in fields.items()}
    for name, part in parts.items():
        if part.ndim == 0 or len(part) != n:
            raise WrongResult(f"wrong shape: expected {n} rows in {name!r}, one per row of theta; got {part.shape}")
    return _join(parts)


def explains(simulator: Any) -> bool:
    """Whether a simulator has a method `explain(x)` for data with NaN: it expects to make such data."""
    return getattr(simulator, "explain", None) is not None


def explainer(simulator: Any) -> Callable[[np.ndarray], str]:
    """Return what tells why data with NaN are not valid: the simulator's own method, or `not_finite`."""
    return simulator.explain if explains(simulator) else not_finite


def reason_of(error: BaseException) -> str:
    """Return the kind of an exception and the first line of its message."""
    message = str(error).strip().split("\n")[0]
    reason = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return reason[:LONGEST_REASON]


def not_finite(x: Float[np.ndarray, "dim_x"]) -> str:
    """Return the reason for a data vector that has NaN or infinite entries."""
    bad = np.flatnonzero(~np.isfinite(x))
    return f"not finite: {len(bad)} of {len(x)} values, the first at position {bad[0]}"


def other_names(names: tuple[str, ...], expected: tuple[str, ...]) -> str:
    """Return the reason for data whose names are not the expected ones, or the empty string."""
    if names == expected:
        return ""
    odd = sorted(set(names) ^ set(expected))
    return f"other names: {', '.join(odd)[:120]}" if odd else "other names: the same in another order"


def _numbers(result: Any) -> np.ndarray:
    """Return the result as a new float64 array: a simulator may fill and return the same buffer every time."""
    if result is None:
        raise WrongResult("returned nothing: expected a data vector; try a return statement in the simulator")
    try:
        result = result.detach().cpu().numpy() if hasattr(result, "detach") else result  # a tensor with a gradient
        values = np.asarray(result)
        if np.iscomplexobj(values):  # NumPy would drop the imaginary parts with a warning
            raise WrongResult("not numbers: expected real numbers; got complex ones; try x.real, x.imag or abs(x)")
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        kind = type(result).__name__
        raise WrongResult(f"not numbers: expected numbers; got {kind} ({error})"[:LONGEST_REASON]) from None


def _fields(result: Any) -> Mapping | None:
    if isinstance(result, Mapping):
        return result
    if isinstance(result, tuple) and hasattr(result, "_asdict"):
        return result._asdict()  # pyright: ignore[reportAttributeAccessIssue]  (checked in the condition)
    labels = getattr(result, "columns", getattr(result, "index", None))  # of a table or a series of pandas
    if hasattr(result, "to_dict") and labels is not None and all(isinstance(label, str) for label in labels):
        return {label: result[label] for label in labels}
    return None


def _join(parts: Mapping[Any, np.ndarray]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Put named arrays with one row per simulation beside one another."""
    names = [entry for name, part in parts.items() for entry in _entry_names(str(name), part.shape[1:])]
    if not names:
        raise WrongResult("wrong shape: expected some data; got an empty dictionary")
    return np.concatenate([part.reshape(len(part), -1) for part in parts.values()], axis=1), tuple(names)


def _entry_names(name: str, shape: tuple[int, ...]) -> list[str]:
    return [name_of_entry(name, place, shape) for place in np.ndindex(*shape)]


def generator(seed: int, round: int, id: int) -> np.random.Generator:
    """Return the random generator of simulation `id` of a round."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(round, id))))


@dataclass(frozen=True)
class Batched:
    """A vectorised simulator; made by `batched`."""

    function: Callable  # takes theta (n, dim) and a numpy generator, returns x (n, dim_x)

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
    """Some simulations of one round."""

    theta: Float[np.ndarray, "n dim"]  # parameters, one row per simulation
    ids: Int[np.ndarray, " n"]  # the number of each simulation in its round
    seed: int  # of the run
    round: int  # of the run

    def take(self, positions: Int[np.ndarray, " m"] | slice) -> "Piece":
        """Return a part of the piece."""
        return self._replace(theta=self.theta[positions], ids=self.ids[positions])

    def generators(self) -> Iterator[np.random.Generator]:
        """Yield the random generator of each simulation."""
        return (generator(self.seed, self.round, i) for i in self.ids.tolist())


def run_piece(simulator: Callable, piece: Piece, *, alone: bool = False) -> Iterator[list[Outcome]]:
    """Simulate, and yield outcomes as they are finished: one at a time, or, for a batched simulator, a block.

    `alone` simulates each row by itself, also those of a batched simulator.
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
