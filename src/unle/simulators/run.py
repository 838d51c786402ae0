"""Simulate a training set: draw parameters from the prior, run the simulator on each, keep everything.

Example:
    >>> import numpy as np
    >>> from unle.simulators import simulate_at
    >>> def simulator(theta, rng):
    ...     return theta + rng.normal(size=2)
    >>> sims = simulate_at(simulator, np.zeros((5, 2)), seed=0)
    >>> sims.x.shape, bool(sims.valid.all())
    ((5, 2), True)
"""

from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from unle.errors import InputError
from unle.simulators.record import Simulations
from unle.simulators.run_round import fill
from unle.store.simulations import SimulationStore


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
            that it holds already are not simulated again.
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
    """
    if not isinstance(n, int | np.integer) or n < 1:
        raise InputError(f"expected `n`, the number of simulations, to be a positive whole number; got {n!r}")
    _check_seed(seed)
    theta = np.asarray(prior.sample(int(n), seed=seed), dtype=np.float64)
    return simulate_at(
        simulator,
        theta,
        seed=seed,
        round=round,
        store=store,
        workers=workers,
        executor=executor,
        timeout=timeout,
        isolate=isolate,
    )


def simulate_at(
    simulator: Callable,
    theta: Float[np.ndarray, "n dim"],
    *,
    seed: int = 0,
    round: int = 0,
    store: SimulationStore | None = None,
    workers: int | None = None,
    executor: Executor | None = None,
    timeout: float | None = None,
    isolate: bool = True,
) -> Simulations:
    """Simulate once at each of the given parameter vectors; arguments and errors are those of `simulate`.

    Args:
        simulator: see `simulate`.
        theta: parameters, one row per simulation.
        seed: decides every simulation.
        round: number of the round.
        store: a table to write to.
        workers: number of processes.
        executor: where to simulate.
        timeout: seconds for one simulation.
        isolate: protect the executor's workers.

    Returns:
        The simulations, in the order of `theta`.
    """
    _check_seed(seed)
    theta = np.asarray(theta, dtype=np.float64)
    if theta.ndim != 2 or 0 in theta.shape or not np.isfinite(theta).all():
        raise InputError(f"expected finite parameters of shape (n, dim); got an array of shape {theta.shape}")
    own = SimulationStore(None) if store is None else store
    try:
        fill(
            own,
            simulator,
            theta,
            seed=seed,
            round=round,
            workers=workers,
            executor=executor,
            timeout=timeout,
            isolate=isolate,
        )
        return Simulations.from_store(own, round)
    finally:
        if store is None:
            own.close()


def _check_seed(seed: int) -> None:
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"expected `seed` to be a whole number, zero or larger; got {seed!r}")
