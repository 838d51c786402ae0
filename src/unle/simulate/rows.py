"""One chunk of simulations: the part that runs wherever the simulator runs.

Each simulation has its own random generator, made from the seed of the run and the number of the simulation:

    SeedSequence(seed, spawn_key=(round, id))

so that a simulation is the same whoever computes it, in whatever order, and however the work is divided.

A simulator that fails costs one row. Whatever it raises or returns becomes either a data vector or a reason.
"""

import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from unle.simulate.batched import Batched

_LONGEST_REASON = 200


class Row(NamedTuple):
    """The outcome of one simulation.

    Attributes:
        x: what came back, as a vector; None if nothing usable did.
        reason: the empty string, or why there is no x.
        seconds: the time it took.
        trace: the traceback of an exception.
    """

    x: Float[np.ndarray, "dim_x"] | None
    reason: str
    seconds: float
    trace: str | None = None


def generator(seed: int, round: int, id: int) -> np.random.Generator:
    """Return the random generator of one simulation.

    Args:
        seed: the seed of the run.
        round: the round.
        id: the number of the simulation within the round.
    """
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(round, id))))


def run_rows(
    simulator: Callable, theta: Float[np.ndarray, "n dim"], ids: Sequence[int], *, seed: int, round: int
) -> list[Row]:
    """Simulate one row after the other, or, for a batched simulator, all rows of the chunk at once.

    Args:
        simulator: takes one parameter vector and a generator, or is `Batched`.
        theta: parameters, one row per simulation.
        ids: the number of each simulation.
        seed: the seed of the run.
        round: the round.

    Returns:
        One `Row` for each simulation.
    """
    if isinstance(simulator, Batched):
        return _run_batch(simulator, theta, ids, seed=seed, round=round)
    return [
        _attempt(lambda rng, t=t: _vector(simulator(t.copy(), rng)), generator(seed, round, i))
        for t, i in zip(theta, ids, strict=True)
    ]


def _run_batch(
    simulator: Batched, theta: Float[np.ndarray, "n dim"], ids: Sequence[int], *, seed: int, round: int
) -> list[Row]:
    start = time.perf_counter()
    try:
        # seeded by the first simulation of the chunk; the chunks are always cut at the same places
        x = _rows(simulator(theta.copy(), generator(seed, round, ids[0])), len(theta))
    except (Exception, SystemExit):
        # One bad parameter vector must not cost the whole chunk: find out which rows fail, each by itself.
        return [
            _attempt(
                lambda rng, t=t: _rows(simulator(t[None].copy(), rng), 1)[0],
                generator(seed, round, i),
            )
            for t, i in zip(theta, ids, strict=True)
        ]
    seconds = (time.perf_counter() - start) / len(theta)
    return [Row(row, "", seconds) for row in x]


def _attempt(run: Callable[[np.random.Generator], np.ndarray], rng: np.random.Generator) -> Row:
    start = time.perf_counter()
    try:
        x = run(rng)
    except _WrongResult as error:
        return Row(None, str(error), time.perf_counter() - start)
    except (Exception, SystemExit) as error:  # a simulator that calls sys.exit() has failed, too
        message = str(error).strip().split("\n")[0]
        reason = f"{type(error).__name__}: {message}" if message else type(error).__name__
        return Row(None, reason[:_LONGEST_REASON], time.perf_counter() - start, traceback.format_exc())
    return Row(x, "", time.perf_counter() - start)


class _WrongResult(Exception):
    """The simulator returned something that is not a data vector."""


def _vector(result: Any) -> Float[np.ndarray, "dim_x"]:
    x = _numbers(result)
    if x.ndim == 0:
        x = x[None]
    if x.ndim != 1 or x.size == 0:
        raise _WrongResult(f"wrong shape: expected one data vector; got an array of shape {x.shape}; try .ravel()")
    return x


def _rows(result: Any, n: int) -> Float[np.ndarray, "n dim_x"]:
    x = _numbers(result)
    if x.ndim != 2 or len(x) != n or x.size == 0:
        raise _WrongResult(f"wrong shape: expected {n} rows, one per row of theta; got shape {x.shape}")
    return x


def _numbers(result: Any) -> np.ndarray:
    if result is None:
        raise _WrongResult("returned nothing: expected a data vector; try a return statement in the simulator")
    try:
        # a copy: a simulator may fill and return the same buffer every time
        return np.array(result, dtype=np.float64)
    except (TypeError, ValueError) as error:
        kind = type(result).__name__
        raise _WrongResult(
            f"not numbers: expected a vector of numbers; got {kind} ({error})"[:_LONGEST_REASON]
        ) from None
