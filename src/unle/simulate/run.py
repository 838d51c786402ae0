"""Simulate a training set: draw parameters from the prior, run the simulator on each, keep everything.

Example:
    >>> import numpy as np
    >>> from unle.simulate import simulate_at
    >>> def simulator(theta, rng):
    ...     return theta + rng.normal(size=2)
    >>> sims = simulate_at(simulator, np.zeros((5, 2)), seed=0)
    >>> sims.x.shape, bool(sims.valid.all())
    ((5, 2), True)
"""

import time
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from unle.errors import InputError, StoreError
from unle.progress import progress
from unle.simulate.batched import CHUNK, Batched
from unle.simulate.record import Simulations, count_reasons, not_finite
from unle.simulate.rows import Row, run_rows
from unle.store.simulations import SimulationStore

FIRST_TRIES = 20  # when all of these fail, the simulator is broken rather than unlucky
SECONDS_BETWEEN_WRITES = 2.0  # what a crash of the whole machine could cost


@runtime_checkable
class Samples(Protocol):
    """What is asked of a prior here."""

    def sample(self, n: int, *, seed: int = 0) -> Any:
        """Return `n` parameter vectors, shape (n, dim)."""
        ...


def simulate(
    simulator: Callable,
    prior: Samples,
    n: int,
    *,
    seed: int = 0,
    round: int = 0,
    store: SimulationStore | None = None,
) -> Simulations:
    """Draw `n` parameter vectors from the prior and simulate each once.

    Args:
        simulator: `simulator(theta, rng)` takes one parameter vector, shape (dim,), and a
            `numpy.random.Generator`, from which all its randomness must come, and returns one data vector: an
            array, a list, or a number. Wrap a vectorised one in `batched`.
        prior: anything with `sample(n, seed=...)`.
        n: how many simulations.
        seed: decides the parameters and every simulation; equal seeds give equal results.
        round: number of the round, for methods that simulate several times; enters the seeds and the store.
        store: a table to which rows are written as they come, so that an interrupted run loses nothing.

    Returns:
        The simulations; one that failed (an exception, NaN, another length) is invalid, with a reason.

    Raises:
        InputError: an argument is wrong, or the first simulations all failed; the message says why.
        StoreError: `store` holds simulations of this round already.
    """
    if not isinstance(n, int | np.integer) or n < 1:
        raise InputError(f"expected `n`, the number of simulations, to be a positive whole number; got {n!r}")
    _check_seed(seed)
    theta = np.asarray(prior.sample(int(n), seed=seed), dtype=np.float64)
    return simulate_at(simulator, theta, seed=seed, round=round, store=store)


def simulate_at(
    simulator: Callable,
    theta: Float[np.ndarray, "n dim"],
    *,
    seed: int = 0,
    round: int = 0,
    store: SimulationStore | None = None,
) -> Simulations:
    """Simulate once at each of the given parameter vectors; see `simulate`.

    Args:
        simulator: as for `simulate`.
        theta: parameters, one row per simulation.
        seed: decides every simulation.
        round: number of the round.
        store: a simulation table to write to.

    Returns:
        The simulations, in the order of `theta`.

    Raises:
        InputError: an argument is wrong, or the first simulations all failed; the message says why.
        StoreError: `store` holds simulations of this round already.
    """
    if not callable(simulator):
        raise InputError(f"expected a simulator, a function of theta and rng; got a {type(simulator).__name__}")
    theta = np.asarray(theta, dtype=np.float64)
    if theta.ndim != 2 or 0 in theta.shape or not np.isfinite(theta).all():
        raise InputError(f"expected finite parameters of shape (n, dim); got an array of shape {theta.shape}")
    _check_seed(seed)
    if store is not None and store.count(round):
        raise StoreError(f"{store.path} already holds simulations of round {round}; use another round or file.")

    book = _Book(theta, round, store)
    size = CHUNK if isinstance(simulator, Batched) else 1
    try:
        with progress("Simulating", total=len(theta)) as bar:
            for start in range(0, len(theta), size):
                ids = range(start, min(start + size, len(theta)))
                book.add(run_rows(simulator, theta[start : start + size], ids, seed=seed, round=round))
                bar.advance(len(ids), note=book.note())
                if len(book.rows) >= FIRST_TRIES and not book.any_valid:
                    raise InputError(_advice(book.rows))
    finally:
        book.write()  # also after Ctrl-C: what was simulated is kept
    return book.record()


def _check_seed(seed: int) -> None:
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"expected `seed` to be a whole number, zero or larger; got {seed!r}")


class _Book:
    """Collects rows in the order of their ids, decides which are valid, writes them out in batches."""

    def __init__(self, theta: np.ndarray, round: int, store: SimulationStore | None):
        self.theta, self.round, self.store = theta, round, store
        self.rows: list[Row] = []
        self.any_valid = False
        self._width: int | None = None  # length of a data vector: that of the first finite one
        self._invalid = 0
        self._written, self._last_write = 0, time.monotonic()

    def add(self, rows: list[Row]) -> None:
        for row in rows:
            reason = row.reason if row.x is None else self._complaint(row.x)
            self._invalid += bool(reason)
            self.any_valid |= not reason
            self.rows.append(row._replace(reason=reason))
        if time.monotonic() - self._last_write > SECONDS_BETWEEN_WRITES:
            self.write()

    def _complaint(self, x: np.ndarray) -> str:
        if not np.isfinite(x).all():  # asked first: many simulators say "failed" by one NaN instead of a vector
            return not_finite(x)
        self._width = self._width or len(x)
        return "" if len(x) == self._width else f"wrong shape: {len(x)} values; the first had {self._width}"

    def note(self) -> str:
        return f"{self._invalid} invalid" if self._invalid else ""

    def write(self) -> None:
        rows = self.rows[self._written :]
        if self.store is not None and rows:
            ids = range(self._written, len(self.rows))
            self.store.append(
                ids=ids,
                theta=self.theta[ids.start : ids.stop],
                x=[row.x for row in rows],
                reasons=[row.reason for row in rows],
                seconds=[row.seconds for row in rows],
                round=self.round,
            )
        self._written, self._last_write = len(self.rows), time.monotonic()

    def record(self) -> Simulations:
        width = self._width or max((len(row.x) for row in self.rows if row.x is not None), default=0)
        nothing = np.full(width, np.nan)
        x = [row.x if row.x is not None and len(row.x) == width else nothing for row in self.rows]
        reasons = tuple(row.reason for row in self.rows)
        return Simulations(
            theta=self.theta,
            x=np.array(x, dtype=np.float64).reshape(len(x), width),
            valid=np.array([not reason for reason in reasons]),
            reasons=reasons,
            seconds=np.array([row.seconds for row in self.rows]),
            first_traceback=next((row.trace for row in self.rows if row.trace), None),
        )


def _advice(rows: list[Row]) -> str:
    trace = next((f"\n\nThe first traceback:\n{row.trace}" for row in rows if row.trace), "")
    return (
        f"expected some valid simulations; got none among the first {len(rows)} "
        f"({count_reasons([row.reason for row in rows])}). The first one: {rows[0].reason}. "
        f"Try simulator(prior.sample(1)[0], numpy.random.default_rng(0)) by itself.{trace}"
    )
