"""Simulating a piece of work, one row after the other: the part that runs where the simulator runs.

A simulator that fails costs one row: whatever it raises or returns becomes either a data vector or a reason.

Each simulation has its own random generator, the same in any process, in any order, in whatever pieces.  Simulation
`id` of a round has the generator that NumPy makes from

    SeedSequence(seed, spawn_key=(round, id)).

NumPy takes some 30 microseconds for one, which matters where a simulation takes a millisecond. Nearly all of it is the
hashing of a few 32-bit words. Here the words of many simulations are hashed at once, by the same published algorithm:
the generators are the same, bit for bit (a test compares them).

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
from jaxtyping import Float, Int, UInt64
from numpy.random.bit_generator import ISpawnableSeedSequence

from unle.simulators.outputs import Outcome, WrongResult, explainer, flatten, flatten_rows, reason_of

MOST_ONE_BY_ONE = 8  # up to so many, NumPy's own way is as fast
_POOL = 4  # words of 32 bits that the seed sequence holds
_PCG64_WORDS = 4  # words of 64 bits that a generator asks for
_WORD = 1 << 32
_SHIFT = np.uint32(16)
_ENTER = 0x43B0D7E5, 0x931E8875  # constants with which words enter the pool
_LEAVE = 0x8B51F9DD, 0x58F38DED  # and leave it
_LEFT, _RIGHT = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)
# Rows per call of a batched simulator. The same on every machine: the seed of a call is that of its first row.
BLOCK_ROWS = 256


def generator(seed: int, round: int, id: int) -> np.random.Generator:
    """Return the random generator of simulation `id` of a round."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(round, id))))


def generators(seed: int, round: int, ids: Int[np.ndarray, " n"]) -> Iterator[np.random.Generator]:
    """Yield the random generators of several simulations, each as `generator` makes it."""
    if len(ids) <= MOST_ONE_BY_ONE or ids.max() >= _WORD:  # an id of two words is hashed in another way
        yield from (generator(seed, round, i) for i in ids.tolist())
        return
    for state, i in zip(_states(seed, round, ids), ids.tolist(), strict=True):
        hashed: Any = _Hashed(state, seed, round, i)  # PCG64 takes it, though its stubs know one class only
        yield np.random.Generator(np.random.PCG64(hashed))


def _states(seed: int, round: int, ids: np.ndarray) -> UInt64[np.ndarray, "n 4"]:
    """Return `SeedSequence(seed, spawn_key=(round, id)).generate_state(4, np.uint64)` for every id."""
    seed_words = _words(seed)
    fixed = [*seed_words, *[0] * (_POOL - len(seed_words)), *_words(round)]
    entropy = [np.full(len(ids), word, dtype=np.uint32) for word in fixed] + [ids.astype(np.uint32)]
    enter = _scrambler(*_ENTER)
    pool = [enter(word) for word in entropy[:_POOL]]
    for source in range(_POOL):
        for target in range(_POOL):
            if source != target:
                pool[target] = _mix(pool[target], enter(pool[source]))
    for word in entropy[_POOL:]:
        pool = [_mix(old, enter(word)) for old in pool]
    leave = _scrambler(*_LEAVE)
    out = [leave(pool[k % _POOL]).astype(np.uint64) for k in range(2 * _POOL)]
    return np.stack([low | high << np.uint64(32) for low, high in zip(out[::2], out[1::2], strict=True)], axis=1)


def _scrambler(constant: int, factor: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that scrambles a word, with another constant every time it is called."""

    def scramble(word: np.ndarray) -> np.ndarray:
        nonlocal constant
        before, constant = constant, constant * factor % _WORD
        word = (word ^ np.uint32(before)) * np.uint32(constant)
        return word ^ word >> _SHIFT

    return scramble


def _mix(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    mixed = _LEFT * old - _RIGHT * new
    return mixed ^ mixed >> _SHIFT


def _words(number: int) -> list[int]:
    """Return the 32-bit words of a number, the lowest first."""
    words = [number % _WORD]
    while number := number // _WORD:
        words.append(number % _WORD)
    return words


class _Hashed(ISpawnableSeedSequence):
    """A seed sequence whose first state is known; for everything else NumPy's own one is made."""

    def __init__(self, state: np.ndarray, seed: int, round: int, id: int):
        self._state, self._arguments = state, (seed, round, id)
        self._sequence: np.random.SeedSequence | None = None  # NumPy's own; kept, because spawn() continues its count

    def generate_state(self, n_words, dtype=np.uint32):
        """Return the words that seed a generator."""
        if n_words == _PCG64_WORDS and dtype is np.uint64:
            return self._state
        return self._real().generate_state(n_words, dtype)

    def spawn(self, n_children):
        """Return independent seed sequences."""
        return self._real().spawn(n_children)

    def _real(self) -> np.random.SeedSequence:
        if self._sequence is None:
            seed, round, id = self._arguments
            self._sequence = np.random.SeedSequence(seed, spawn_key=(round, id))
        return self._sequence


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
