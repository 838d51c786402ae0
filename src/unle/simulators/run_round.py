"""Fill a store with the simulations of a round: those that it lacks, in this process or through an executor.

Nothing here returns simulations. They go into the store as they come, so that the memory of the driver does not grow
with their number.
"""

import hashlib
import os
import socket
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager

import numpy as np
from jaxtyping import Float

from unle.errors import InputError, StoreError, UnleWarning
from unle.progress import AbstractBar, progress
from unle.simulators.batched import CHUNK, Batched
from unle.simulators.chunk import Chunk
from unle.simulators.dispatch import dispatch
from unle.simulators.engine import Engine, processes
from unle.simulators.jax_simulator import OnDevice
from unle.simulators.plan import Plan
from unle.simulators.rows import explains, run_rows
from unle.simulators.serialise import ship
from unle.simulators.work import Work
from unle.simulators.writer import FIRST_TRIES, MANY_TRIES, Book
from unle.store.simulations import SimulationStore

SECONDS_BETWEEN_WRITES = 0.5  # in this process: what a crash could cost


def fill(
    store: SimulationStore,
    simulator: Callable,
    theta: Float[np.ndarray, "n dim"],
    *,
    seed: int = 0,
    round: int = 0,
    workers: int | None = None,
    executor: Executor | None = None,
    timeout: float | None = None,
    isolate: bool = True,
) -> None:
    """Simulate at every row of theta that the store lacks; the arguments are those of `unle.simulate`.

    Args:
        store: what it holds of this round is kept and not simulated again.
        simulator: of any kind.
        theta: all parameters of the round.
        seed: decides every simulation.
        round: number of the round.
        workers: number of processes.
        executor: where to simulate.
        timeout: seconds for one simulation.
        isolate: protect the executor's workers.

    Raises:
        InputError: an argument is wrong, or the simulator always fails.
        StoreError: the store holds other simulations of this round, or cannot be written.
        SimulationError: the executor does not work.
    """
    _check(simulator, workers, executor, timeout, isolate=isolate)
    _claim(store, theta, seed, round)
    n = len(theta)
    missing = np.setdiff1d(np.arange(n), store.ids(round), assume_unique=True)
    book = Book(theta, round, store, first_tries=MANY_TRIES if explains(simulator) else FIRST_TRIES)
    if len(missing):
        with progress("Simulating", total=n) as bar:
            bar.advance(n - len(missing))
            if isinstance(simulator, OnDevice):
                if workers or executor:
                    warnings.warn(
                        "a JAX simulator runs in this process; workers are not used.", UnleWarning, stacklevel=3
                    )
                _on_device(simulator, theta, missing, book, bar, seed=seed, round=round)
            elif workers is None and executor is None and timeout is None:
                _here(simulator, theta, missing, book, bar, seed=seed, round=round)
            else:
                block = CHUNK if isinstance(simulator, Batched) else None
                blob = ship(simulator)

                def make_work(ids: np.ndarray) -> Work:
                    whole = ids if block is None else _block(int(ids[0]), block, n)
                    return Work(blob, theta[whole], whole, seed, round, block is not None, timeout, isolate)

                with _engine(workers, executor, blob) as engine:
                    dispatch(engine, Plan(missing, block), make_work, book, bar)
    store.settle(round)


def _here(
    simulator: Callable,
    theta: np.ndarray,
    missing: np.ndarray,
    book: Book,
    bar: AbstractBar,
    *,
    seed: int,
    round: int,
) -> None:
    """Simulate in this process."""
    rows, ids, written = [], [], time.monotonic()
    worker = f"{socket.gethostname()}:{os.getpid()}"

    def flush() -> None:
        nonlocal rows, ids, written
        if ids:
            taken, rows, ids, written = (np.array(ids), Chunk.of(rows, worker)), [], [], time.monotonic()
            book.add(*taken)
        book.write()
        bar.advance(0, note=book.note())

    size = CHUNK if isinstance(simulator, Batched) else 1
    wanted = set(missing.tolist()) if size > 1 else None
    firsts = missing if size == 1 else np.unique(missing // size) * size
    try:
        for first in firsts.tolist():
            piece = _block(first, size, len(theta))
            for finished in run_rows(simulator, theta[piece], piece, seed=seed, round=round):
                for i, row in zip(piece.tolist(), finished, strict=True):
                    if wanted is None or i in wanted:
                        rows.append(row)
                        ids.append(i)
                        bar.advance(1)
            if time.monotonic() - written > SECONDS_BETWEEN_WRITES or (not book.any_valid and len(ids) >= 20):
                flush()
                book.check()
    finally:
        flush()  # also after Ctrl-C: what was simulated is kept
    book.check()


def _on_device(
    simulator: OnDevice,
    theta: np.ndarray,
    missing: np.ndarray,
    book: Book,
    bar: AbstractBar,
    *,
    seed: int,
    round: int,
) -> None:
    """Simulate on the accelerator, block after block."""
    for first in (np.unique(missing // simulator.batch) * simulator.batch).tolist():
        ids = _block(first, simulator.batch, len(theta))
        chunk = simulator.run(theta[ids], ids, seed=seed, round=round)
        there = np.isin(ids, missing)
        book.add(ids[there], chunk if there.all() else chunk.part(there))
        book.write()
        bar.advance(int(there.sum()), note=book.note())
        book.check()


@contextmanager
def _engine(workers: int | None, executor: Executor | None, blob: bytes) -> Iterator[Engine]:
    if executor is not None:
        yield Engine(executor)
    else:
        with processes(workers or 1, blob) as engine:  # a time limit alone needs a process to kill
            yield engine


def _block(first: int, size: int, n: int) -> np.ndarray:
    start = first // size * size
    return np.arange(start, min(start + size, n))


def _claim(store: SimulationStore, theta: np.ndarray, seed: int, round: int) -> None:
    """Write down what a round is made of; refuse to mix it with another."""
    name = f"round {round}"
    wanted = {"seed": int(seed), "n": len(theta), "theta_sha256": hashlib.sha256(theta.tobytes()).hexdigest()}
    known = store.fact(name)
    if known is None and store.count(round):
        raise StoreError(f"{store.path} already holds simulations of round {round}, from elsewhere; use another round.")
    if known is None:
        store.remember(name, wanted)
    elif known != wanted:
        what = ", ".join(key.removesuffix("_sha256") for key in wanted if known.get(key) != wanted[key])
        raise StoreError(f"{store.path} already holds other simulations of round {round}: another {what}.")


def _check(
    simulator: Callable, workers: int | None, executor: Executor | None, timeout: float | None, *, isolate: bool
) -> None:
    if not callable(simulator):
        raise InputError(f"expected a simulator, a function of theta and rng; got a {type(simulator).__name__}")
    if workers is not None and (not isinstance(workers, int) or workers < 1):
        raise InputError(f"expected `workers`, a number of processes, to be a positive whole number; got {workers!r}")
    if workers is not None and executor is not None:
        raise InputError("expected either `workers` or `executor`; got both")
    if executor is not None and not callable(getattr(executor, "submit", None)):
        raise InputError(f"expected an executor with a method `submit`; got a {type(executor).__name__}")
    if timeout is not None and not timeout > 0:
        raise InputError(f"expected `timeout` in seconds, larger than zero; got {timeout}")
    if timeout is not None and not isolate:
        raise InputError("expected isolate=True with a time limit: only a process of its own can be ended")
