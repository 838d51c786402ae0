"""Simulate the training set of a round: run the simulator on each parameter vector, keep everything.

Rows go into a store as they come, so that an interrupted run loses nothing and the memory of this process does not grow
with their number. Those that the store holds already are not simulated again.

Example:
    >>> import numpy as np
    >>> from unle.simulators import simulate_at
    >>> def simulator(theta, rng):
    ...     return theta + rng.normal(size=2)
    >>> sims = simulate_at(simulator, np.zeros((5, 2)), seed=0)
    >>> sims.x.shape, bool(sims.valid.all())
    ((5, 2), True)
"""

import inspect
import os
import socket
import time
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import nullcontext
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from unle.arrays import as_count
from unle.errors import InputError, other_names, warn_user
from unle.progress import AbstractBar, progress
from unle.simulators.dispatch import Blocks, Plan, claim_round, dispatch
from unle.simulators.jax_simulators import JaxSimulator
from unle.simulators.piece import BLOCK_ROWS, Batched, Piece, explains, run_piece
from unle.simulators.simulations import (
    FIRST_EXPLAINED_TRIES,
    FIRST_TRIES,
    Simulations,
    Writer,
    count_reasons,
    hint_of_failure,
)
from unle.simulators.subprocess_simulator import Command
from unle.simulators.workers import Work, process_executor, serialise
from unle.store import SimulationStore

SECONDS_BETWEEN_WRITES = 0.5  # in this process: what a crash could cost
ROWS_BEFORE_FIRST_CHECK = 20  # a simulator that always fails is noticed after so many rows, also a fast one


@runtime_checkable
class Samples(Protocol):
    """What is asked of a prior here."""

    def sample(self, n: int, *, seed: int = 0) -> Any:
        """Return `n` parameter vectors, shape (n, dim)."""
        ...


@other_names(
    "unle.simulate(simulator, prior, 1000)",
    num_simulations="n",
    proposal="prior",
    num_workers="workers",
    random_seed="seed",
)
def simulate(
    simulator: Callable,
    prior: Samples,
    n: int | float,
    *,
    seed: int = 0,
    round: int = 0,
    store: SimulationStore | None = None,
    workers: int | None = None,
    executor: Executor | None = None,
    timeout: float | None = None,
    isolate: bool = True,
) -> Simulations:
    """Draw `n` parameter vectors from the prior and simulate each once.

    The result depends on the simulator, the prior, `n`, `seed` and `round`, and on nothing else: not on the number of
    workers, not on the kind of executor, not on interruptions.

    Args:
        simulator: `simulator(theta, rng)` takes one parameter vector, shape (dim,), and a
            `numpy.random.Generator`, from which all its randomness must come, and returns one data vector: an
            array, a list, a number, or a dictionary of these. See `batched`, `jax_simulator` and `command` for
            other kinds.
        prior: anything with `sample(n, seed=...)`.
        n: how many simulations.
        seed: decides the parameters and every simulation; equal seeds give equal results.
        round: number of the round, for methods that simulate several times; enters the seeds and the store.
        store: a table to which rows are written as they come, so that an interrupted run loses nothing; those
            that it holds already are not simulated again.  With a larger n than before, only the missing ones are made.
        workers: simulate in so many processes of this machine. None simulates in this one.
        executor: simulate wherever this `concurrent.futures.Executor` does its work: `client.get_executor()` of a Dask
            client, an MPI pool, threads.
        timeout: seconds that one simulation may take; after that it is killed and becomes invalid.
        isolate: give every worker of `executor` a process of its own for the simulator, so that a crash or a
            hanging simulation does not harm the worker. False simulates in the worker itself, without time limit.

    Returns:
        The simulations; one that failed (an exception, NaN, a crash, too long) is invalid, with a reason.

    Raises:
        InputError: an argument is wrong, or the first simulations all failed; the message says why.
        StoreError: `store` holds other simulations of this round, or cannot be written.
        SimulationError: the executor does not work.

    Example:
        >>> import unle
        >>> prior = unle.Prior.uniform(low=[-1.0], high=[1.0])
        >>> sims = unle.simulate(lambda theta, rng: theta + 0.1 * rng.normal(), prior, 100, seed=0)
        >>> sims.theta.shape, sims.x.shape, bool(sims.valid.all())
        ((100, 1), (100, 1), True)
    """
    n = as_count(n, "simulations")
    _check_seed(seed)
    check_simulator(simulator, prior)
    theta = np.asarray(prior.sample(n, seed=seed), dtype=np.float64)
    options = {"workers": workers, "executor": executor, "timeout": timeout, "isolate": isolate}
    simulations = simulate_at(simulator, theta, seed=seed, round=round, store=store, **options)
    if not simulations.valid.any():
        warn_user(
            f"no simulation is valid ({count_reasons(simulations.reasons)}). {hint_of_failure(simulations.reasons[0])}"
            "Try the simulator by itself: simulator(prior.sample(1)[0], np.random.default_rng(0))."
        )
    return simulations


def simulate_at(
    simulator: Callable,
    theta: Float[np.ndarray, "n dim"],
    *,
    seed: int = 0,
    round: int = 0,
    store: SimulationStore | None = None,
    **options: Any,
) -> Simulations:
    """Simulate once at each row of theta; other arguments and errors are those of `simulate`."""
    _check_seed(seed)
    theta = np.asarray(theta, dtype=np.float64)
    if theta.ndim != 2 or 0 in theta.shape or not np.isfinite(theta).all():
        raise InputError(f"expected finite parameters of shape (n, dim); got an array of shape {theta.shape}")
    with SimulationStore(None) if store is None else nullcontext(store) as table:
        simulate_into(table, simulator, theta, seed=seed, round=round, **options)
        return Simulations.from_store(table, round)


def _has_samples(prior: Any) -> bool:
    """Return whether it can be called as prior.sample(n, seed=...); distributions of other libraries cannot."""
    try:
        inspect.signature(prior.sample).bind(1, seed=0)
    except (AttributeError, TypeError, ValueError):
        return False
    return True


def check_simulator(simulator: Any, prior: Any = None) -> None:
    """Refuse what is no function of theta and rng, before it fails a hundred times."""
    if hasattr(simulator, "sample") and callable(prior):
        raise InputError("expected the simulator before the prior; got them the other way round.")
    if not callable(simulator):
        raise InputError(f"expected a simulator, a function of theta and rng; got a {type(simulator).__name__}")
    if prior is not None and not _has_samples(prior):
        raise InputError(f"expected a Prior; got a {type(prior).__name__}; try unle.Prior(...) around it.")
    if isinstance(simulator, Command) and simulator.names and hasattr(prior, "names"):
        _check_names(simulator.names, prior)
    function = simulator.function if isinstance(simulator, Batched) else simulator
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # compiled functions may hide theirs
        return
    try:
        signature.bind("theta", "rng")
    except TypeError:
        name = getattr(function, "__name__", type(function).__name__)
        raise InputError(
            f"expected a simulator of theta and a random generator; got {name}{signature}; "
            f"try `def simulator(theta, rng)`, with random numbers from rng, and @unle.batched above it if theta is to "
            "be a whole batch."
        ) from None


def _check_names(names: tuple[str, ...], prior: Any) -> None:
    """Refuse a program whose parameters have other names, or another order, than those of the prior."""
    is_named = not getattr(prior, "has_made_up_names", False)
    if len(names) != len(prior.names) or (is_named and names != tuple(prior.names)):
        raise InputError(
            f"expected a command with the names of the prior, in its order; got {', '.join(names)}; "
            f"try names={list(prior.names)}."
        )


def simulate_into(
    store: SimulationStore,  # what it holds of this round is kept and not simulated again
    simulator: Callable,  # of any kind, see `simulate`
    theta: Float[np.ndarray, "n dim"],  # all parameters of the round
    *,
    seed: int = 0,  # decides every simulation
    round: int = 0,  # number of the round
    workers: int | None = None,  # number of processes
    executor: Executor | None = None,  # where to simulate
    timeout: float | None = None,  # seconds for one simulation
    isolate: bool = True,  # protect the executor's workers
    check_length: Callable[[int], Any] = lambda dim_x: None,  # raises an error if x of this length is of no use
) -> None:
    """Simulate at every row of theta that the store lacks. Returns nothing: the simulations are in the store.

    Raises:
        InputError: an argument is wrong, or the simulator always fails.
        StoreError: the store holds other simulations of this round, or cannot be written.
        SimulationError: the executor does not work.
    """
    _check(simulator, workers, executor, timeout, isolate=isolate)
    starts = claim_round(store, theta, seed, round)
    whole = Piece(theta, np.arange(len(theta)), seed, round)
    missing = np.setdiff1d(whole.ids, store.ids(round), assume_unique=True)
    first_tries = FIRST_EXPLAINED_TRIES if explains(simulator) else FIRST_TRIES
    writer = Writer(theta, round, store, first_tries=first_tries, check_length=check_length)
    if len(missing):
        with progress("Simulating", total=len(theta)) as bar:
            bar.advance(len(theta) - len(missing))
            if isinstance(simulator, JaxSimulator):
                if workers or executor:
                    warn_user("a JAX simulator runs in this process; workers are not used.")
                _run_on_device(simulator, whole, missing, Blocks(simulator.batch, len(theta), starts), writer, bar)
            elif workers is None and executor is None and timeout is None:
                size = BLOCK_ROWS if isinstance(simulator, Batched) else 1
                _run_here(simulator, whole, missing, Blocks(size, len(theta), starts), writer, bar)
            else:
                blocks = Blocks(BLOCK_ROWS, len(theta), starts) if isinstance(simulator, Batched) else None
                blob = serialise(simulator)

                def make_work(ids: np.ndarray) -> Work:
                    piece = whole.take(ids if blocks is None else blocks.of(int(ids[0])))
                    return Work(blob, piece, blocks is not None, timeout, isolate)

                # a time limit alone needs a process to kill
                with nullcontext(executor) if executor is not None else process_executor(workers or 1, blob) as pool:
                    dispatch(pool, Plan(missing, blocks), make_work, writer, bar)
    store.settle_x_width(round)


def _run_here(
    simulator: Callable, whole: Piece, missing: np.ndarray, blocks: Blocks, writer: Writer, bar: AbstractBar
) -> None:
    """Simulate in this process."""
    worker = f"{socket.gethostname()}:{os.getpid()}"
    unwritten, written = 0, time.monotonic()
    try:
        for first in blocks.firsts(missing):
            ids = blocks.of(first)
            wanted = np.isin(ids, missing) if blocks.size > 1 else np.array([True])
            for finished in run_piece(simulator, whole.take(ids)):
                outcomes = [outcome._replace(worker=worker) for outcome in finished]
                writer.add(ids[wanted], [outcomes[k] for k in np.flatnonzero(wanted)])
            bar.advance(int(wanted.sum()))
            unwritten += len(ids)
            waited = time.monotonic() - written > SECONDS_BETWEEN_WRITES
            if waited or (not writer.any_valid and unwritten >= ROWS_BEFORE_FIRST_CHECK):
                writer.write()
                writer.check()
                unwritten, written = 0, time.monotonic()
    finally:
        writer.write()  # also after Ctrl-C: what was simulated is kept
        bar.advance(0, note=writer.note())
    writer.check()


def _run_on_device(
    simulator: JaxSimulator, whole: Piece, missing: np.ndarray, blocks: Blocks, writer: Writer, bar: AbstractBar
) -> None:
    """Simulate on the accelerator, block after block."""
    for ids in map(blocks.of, blocks.firsts(missing)):
        outcomes, wanted = simulator.run(whole.take(ids)), np.isin(ids, missing)
        writer.add(ids[wanted], [outcomes[k] for k in np.flatnonzero(wanted)])
        writer.write()
        bar.advance(int(wanted.sum()), note=writer.note())
        writer.check()


def _check_seed(seed: int) -> None:
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"expected `seed` to be a whole number, zero or larger; got {seed!r}")


def _check(
    simulator: Callable, workers: int | None, executor: Executor | None, timeout: float | None, *, isolate: bool
) -> None:
    check_simulator(simulator)
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
