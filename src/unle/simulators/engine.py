"""Where simulations run: processes of this machine, Dask, or whatever implements `concurrent.futures.Executor`.

Example:
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> from unle.simulators.engine import Engine
    >>> with ThreadPoolExecutor(3) as executor:
    ...     Engine(executor).slots()
    3
"""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from unle.errors import InputError
from unle.simulators.sandbox import Sandbox
from unle.simulators.work import Work, adopt, do

PATIENCE = "10s"  # for a scheduler to answer
# Dask remembers its last 1,000 messages, and with them the parameters of 1,000 pieces of work.
SHORT_LOG = {"distributed.admin.low-level-log-length": 20}


@dataclass(frozen=True)
class Engine:
    """An executor, and what is known about it.

    Attributes:
        executor: does the work.
        stop: an event that makes the sandboxes of this process give up.
    """

    executor: Executor
    stop: threading.Event = field(default_factory=threading.Event)

    def submit(self, work: Work) -> "Future":
        """Hand over a piece of work."""
        return self.executor.submit(do, work)

    def slots(self) -> int:
        """Return how many pieces of work the executor can do at once, now: clusters grow and shrink."""
        client: Any = getattr(self.executor, "_client", None)  # Dask's executor names its client nowhere else
        if client is not None and hasattr(client, "nthreads"):
            return sum(client.nthreads().values())
        for name in ("num_workers", "_max_workers"):  # mpi4py; the standard library
            if isinstance(number := getattr(self.executor, name, None), int):
                return max(1, number)
        return os.cpu_count() or 1


@contextmanager
def processes(workers: int, blob: bytes) -> Iterator[Engine]:
    """Simulate in several processes of this machine.

    Each is a sandbox, looked after by a thread: a crash costs one simulation, and nothing else notices.

    Args:
        workers: how many.
        blob: the simulator.
    """
    stop = threading.Event()
    sandboxes: list[Sandbox] = []

    def begin() -> None:
        sandboxes.append(Sandbox(blob, stop))
        adopt(sandboxes[-1])

    executor = ThreadPoolExecutor(workers, thread_name_prefix="unle", initializer=begin)
    try:
        yield Engine(executor, stop)
    finally:
        stop.set()
        executor.shutdown(wait=True, cancel_futures=True)
        for sandbox in sandboxes:
            sandbox.close()


@contextmanager
def dask_executor(address: str) -> Iterator[Executor]:
    """Connect to a Dask scheduler.

    Args:
        address: of the scheduler, such as `tcp://10.0.0.1:8786`, or the path of its scheduler file (.json).

    Raises:
        InputError: Dask is not installed, or nobody answers.
    """
    try:
        from dask import config
        from distributed import Client
    except ImportError:
        raise InputError('expected Dask to be installed; try: pip install "unle[dask]"') from None
    try:
        scheduler: dict[str, Any] = {"scheduler_file" if address.endswith(".json") else "address": address}
        with config.set(SHORT_LOG):
            client = Client(**scheduler, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise InputError(f"expected a Dask scheduler at {address}; got no answer ({error}); is it running?") from error
    try:
        # A piece of work whose worker vanishes is given to another one by Dask itself.
        yield client.get_executor(pure=False)
    finally:
        client.close()
