"""The inside of a sandbox: a process that simulates what it is sent, and may die doing so.

It is started by `unle.simulators.sandbox`, speaks with it over one socket, and ends when its parent does. It imports
numpy and the simulator, never jax.
"""

import contextlib
import mmap
import os
import select
import socket
import struct
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

FLUSH_SECONDS = 0.05  # finished rows wait at most this long for the journey to the parent
IDLE_SECONDS = 60.0  # without work for so long, a sandbox ends; its parent starts another one when needed
NOWHERE = -1  # the position while no simulation is running

POSITION = struct.Struct("q")


class Order(NamedTuple):
    """What a parent sends.

    Attributes:
        theta: parameters.
        ids: number of each simulation.
        seed: of the run.
        round: of the run.
        alone: simulate each row by itself, also those of a batched simulator.
    """

    theta: np.ndarray
    ids: np.ndarray
    seed: int
    round: int
    alone: bool = False

    def between(self, start: int, stop: int) -> "Order":
        """Return a part of the order."""
        return self._replace(theta=self.theta[start:stop], ids=self.ids[start:stop])


def main(channel: int, board: int) -> None:
    """Serve the parent.

    Args:
        channel: file descriptor of the socket to the parent.
        board: file descriptor of a small shared file, where the position of the running simulation is written.
    """
    _die_with_parent()
    _leave_no_core_file()
    connection = Connection(channel)
    with mmap.mmap(board, POSITION.size) as position, contextlib.suppress(EOFError, OSError):
        simulator = _load(connection)
        while connection.poll(IDLE_SECONDS):
            order = connection.recv()
            _serve(connection, position, simulator, order)


def _serve(connection: Connection, position: mmap.mmap, simulator: Any, order: Order) -> None:
    """Simulate, and send chunks of finished rows every now and then."""
    from unle.simulators.chunk import Chunk
    from unle.simulators.rows import run_rows, run_single

    worker = f"{socket.gethostname()}:{os.getpid()}"
    kwargs = {"seed": order.seed, "round": order.round}
    if order.alone:
        rows = ([run_single(simulator, t, i, **kwargs)] for t, i in zip(order.theta, order.ids, strict=True))
    else:
        rows = run_rows(simulator, order.theta, order.ids, **kwargs)
    waiting, done, sent = [], 0, time.monotonic()
    position[:] = POSITION.pack(0)
    for finished in rows:
        waiting += finished
        done += len(finished)
        position[:] = POSITION.pack(done)
        if time.monotonic() - sent > FLUSH_SECONDS or done == len(order.ids):
            connection.send(Chunk.of(waiting, worker))
            waiting, sent = [], time.monotonic()
    position[:] = POSITION.pack(NOWHERE)


def _load(connection: Connection) -> Any:
    """Receive the simulator; say whether that worked."""
    import cloudpickle

    blob = connection.recv_bytes()
    try:
        simulator = cloudpickle.loads(blob)
    except BaseException:
        connection.send(traceback.format_exc())
        sys.exit(1)
    connection.send("")
    return simulator


def _die_with_parent() -> None:
    """End when the parent ends, even in the middle of a simulation: it holds the other end of our standard input."""
    lifeline = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)  # a simulator that reads its standard input finds it empty
    os.close(null)

    def wait() -> None:
        select.select([lifeline], [], [])
        from unle.simulators.subprocess_simulator import end_running

        end_running()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _leave_no_core_file() -> None:
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))
