"""Where simulations run: processes of this machine, Dask, or any other `concurrent.futures.Executor`.

A simulator reaches another process by name if it can be imported there, and by value otherwise. cloudpickle sends
functions of notebooks and scripts, lambdas and closures by value. So are the functions of a model file, which no other
process could import by name, and those of the built-in tasks, whose modules import jax. Only what the function refers
to travels with it; the rest of the file, such as the prior, does not.

Example:
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> from unle.simulators.workers import worker_count
    >>> with ThreadPoolExecutor(3) as executor:
    ...     worker_count(executor)
    3
"""

import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

from unle.errors import InputError
from unle.simulators.piece import Outcome, Piece, run_piece
from unle.simulators.sandbox import Sandbox

SCHEDULER_TIMEOUT = "10s"  # for a Dask scheduler to answer
# Dask remembers its last 1,000 messages, and with them the parameters of 1,000 pieces of work.
SHORT_DASK_LOG = {"distributed.admin.low-level-log-length": 20}
MODEL_PREFIX = "unle_model_"  # of the modules that are made from a user's file
_BY_VALUE = (MODEL_PREFIX, "unle_bench.tasks.")
LARGEST_BLOB = 10_000_000  # bytes of a serialised simulator

_THREAD = threading.local()  # the sandbox, or the simulator, of each thread of an executor's worker


class Work(NamedTuple):
    """A piece of work for an executor."""

    blob: bytes  # the simulator, from `serialise`
    piece: Piece  # the simulations
    block: bool = False  # the simulator is a batched one, and the piece is one block
    timeout: float | None = None  # seconds that one simulation may take
    isolate: bool = True  # simulate in a sandbox; otherwise in the executor's own worker


def run_work(work: Work) -> list[Outcome]:
    """Simulate; called by an executor, in one of its workers."""
    if work.isolate:
        return _sandbox(work.blob).run(work.piece, timeout=work.timeout, block=work.block)
    worker = f"thread {threading.get_ident()}"
    finished = run_piece(_simulator(work.blob), work.piece)
    return [outcome._replace(worker=worker) for outcomes in finished for outcome in outcomes]


def worker_count(executor: Executor) -> int:
    """Return how many pieces of work the executor can do at once, now: clusters grow and shrink."""
    client: Any = getattr(executor, "_client", None)  # Dask's executor names its client nowhere else
    if client is not None and hasattr(client, "nthreads"):
        return sum(client.nthreads().values())
    for name in ("num_workers", "_max_workers"):  # mpi4py; the standard library
        if isinstance(number := getattr(executor, name, None), int):
            return max(1, number)
    return os.cpu_count() or 1


@contextmanager
def process_executor(workers: int, blob: bytes) -> Iterator[Executor]:
    """Simulate in several processes of this machine.

    Each is a sandbox, looked after by a thread: a crash costs one simulation, and nothing else notices.
    """
    stop = threading.Event()
    sandboxes: list[Sandbox] = []

    def begin() -> None:
        _THREAD.sandbox = Sandbox(blob, stop)
        sandboxes.append(_THREAD.sandbox)

    executor = ThreadPoolExecutor(workers, thread_name_prefix="unle", initializer=begin)
    try:
        yield executor
    finally:
        stop.set()
        executor.shutdown(wait=True, cancel_futures=True)
        for sandbox in sandboxes:
            sandbox.close()


@contextmanager
def dask_executor(address: str) -> Iterator[Executor]:
    """Connect to a Dask scheduler: its address, such as `tcp://10.0.0.1:8786`, or the path of its file (.json)."""
    try:
        from dask import config
        from distributed import Client
    except ImportError:
        raise InputError('expected Dask to be installed; try: pip install "unle[dask]"') from None
    try:
        scheduler: dict[str, Any] = {"scheduler_file" if address.endswith(".json") else "address": address}
        with config.set(SHORT_DASK_LOG):
            client = Client(**scheduler, timeout=SCHEDULER_TIMEOUT, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise InputError(f"expected a Dask scheduler at {address}; got no answer ({error}); is it running?") from error
    try:
        # A piece of work whose worker vanishes is given to another one by Dask itself.
        yield client.get_executor(pure=False)
    finally:
        client.close()


def serialise(simulator: Any) -> bytes:
    """Serialise a simulator for another process of the same run."""
    import cloudpickle

    modules = [module for name, module in sys.modules.items() if name.startswith(_BY_VALUE)]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        blob = cloudpickle.dumps(simulator)
    except Exception as error:  # whatever the parts of a user's object raise when they are serialised
        raise InputError(
            f"expected a simulator that can be sent to other processes; got {type(error).__name__}: {error}; "
            "try opening files and building large objects inside the function"
        ) from error
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)
    if len(blob) > LARGEST_BLOB:
        raise InputError(
            f"expected a simulator of moderate size; got one that takes {len(blob) / 1e6:.0f} MB with the data that it "
            "refers to, and it travels with every piece of work; try loading the data from a file inside the function"
        )
    return blob


def _sandbox(blob: bytes) -> Sandbox:
    """Return this thread's sandbox for the simulator, in place of one for another simulator."""
    current: Sandbox | None = getattr(_THREAD, "sandbox", None)
    if current is None or current.blob != blob:
        if current is not None:
            current.close()
        current = _THREAD.sandbox = Sandbox(blob)
    return current


def _simulator(blob: bytes) -> Any:
    """Return the simulator, unpacked once per thread."""
    if getattr(_THREAD, "blob", None) != blob:
        import cloudpickle

        _THREAD.blob, _THREAD.simulator = blob, cloudpickle.loads(blob)
    return _THREAD.simulator
