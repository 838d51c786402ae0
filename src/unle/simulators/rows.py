"""Simulating rows one after the other: the part that runs wherever the simulator runs.

Each simulation has its own random generator, made from the seed of the run and the number of the simulation by
`unle.simulators.seeding`, so that a simulation is the same whoever computes it, in any order, in whatever pieces.

A simulator that fails costs one row. Whatever it raises or returns becomes either a data vector or a reason.
"""

import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from unle.simulators.batched import Batched
from unle.simulators.chunk import Row
from unle.simulators.outputs import LONGEST_REASON, WrongResult, flatten, flatten_rows
from unle.simulators.seeding import generator, generators


def run_rows(
    simulator: Callable, theta: Float[np.ndarray, "n dim"], ids: Sequence[int] | np.ndarray, *, seed: int, round: int
) -> Iterator[list[Row]]:
    """Simulate, and yield rows as they are finished: one at a time, or, for a batched simulator, a block.

    Args:
        simulator: takes one parameter vector and a generator, or is `Batched`; then the rows given must be one block.
        theta: parameters, one row per simulation.
        ids: the number of each simulation.
        seed: the seed of the run.
        round: the round.
    """
    if isinstance(simulator, Batched):
        yield _run_block(simulator, theta, ids, seed=seed, round=round)
        return
    for t, rng in zip(theta, generators(seed, round, ids), strict=True):
        yield [attempt(lambda rng, t=t: flatten(simulator(t.copy(), rng)), rng, explainer(simulator))]


def run_single(
    simulator: Callable, theta: Float[np.ndarray, "dim"], id: int | np.integer, *, seed: int, round: int
) -> Row:
    """Simulate one row by itself, also if the simulator is a batched one."""
    if isinstance(simulator, Batched):

        def run(rng: np.random.Generator) -> tuple[np.ndarray, tuple[str, ...]]:
            x, names = flatten_rows(simulator(theta[None].copy(), rng), 1)
            return x[0], names
    else:

        def run(rng: np.random.Generator) -> tuple[np.ndarray, tuple[str, ...]]:
            return flatten(simulator(theta.copy(), rng))

    return attempt(run, generator(seed, round, int(id)), explainer(simulator))


def _run_block(
    simulator: Batched, theta: Float[np.ndarray, "n dim"], ids: Sequence[int] | np.ndarray, *, seed: int, round: int
) -> list[Row]:
    start = time.perf_counter()
    try:
        # seeded by the first simulation of the block; blocks are always cut at the same places
        x, names = flatten_rows(simulator(theta.copy(), generator(seed, round, int(ids[0]))), len(theta))
    except (Exception, SystemExit):
        # One bad parameter vector must not cost the whole block: find out which rows fail, each by itself.
        return [run_single(simulator, t, i, seed=seed, round=round) for t, i in zip(theta, ids, strict=True)]
    seconds = (time.perf_counter() - start) / len(theta)
    explain = explainer(simulator)
    return [
        Row(row, "" if good.all() else explain(row), seconds, names=names)
        for row, good in zip(x, np.isfinite(x), strict=True)
    ]


def attempt(
    run: Callable[[np.random.Generator], tuple[np.ndarray, tuple[str, ...]]],
    rng: np.random.Generator,
    explain: Callable[[np.ndarray], str],
) -> Row:
    """Call a function that returns a data vector and its names; whatever happens is a row."""
    start = time.perf_counter()
    try:
        x, names = run(rng)
    except WrongResult as error:
        return Row(None, str(error), time.perf_counter() - start)
    except (Exception, SystemExit) as error:  # a simulator that calls sys.exit() has failed, too
        return Row(None, reason_of(error), time.perf_counter() - start, traceback.format_exc())
    seconds = time.perf_counter() - start
    return Row(x, "" if np.isfinite(x).all() else explain(x), seconds, names=names)


def explains(simulator: Any) -> bool:
    """Whether a simulator has its own words, a method `explain(x)`, for data with NaN: it expects to make such data."""
    return getattr(simulator, "explain", None) is not None


def explainer(simulator: Any) -> Callable[[np.ndarray], str]:
    """Return what tells why data with NaN are not valid: the simulator's own words, or `not_finite`."""
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
