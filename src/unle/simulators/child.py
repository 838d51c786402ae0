"""The inside of a sandbox: a process that simulates the pieces it is sent, and may die doing so.

It is started by `unle.simulators.sandbox`, talks to it over one socket, and ends when its parent does. It imports numpy
and the simulator, never jax.
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
from typing import Any

FLUSH_SECONDS = 0.05  # finished rows are sent after at most this long
IDLE_SECONDS = 60.0  # without work for so long, the process ends; its parent starts another one when needed
NO_POSITION = -1  # while no simulation is running

POSITION = struct.Struct("q")


def main(channel: int, board: int) -> None:
    """Simulate what the parent sends; both numbers are file descriptors.

    `channel` is the socket to the parent, `board` a small shared file for the position of the running simulation.
    """
    _die_with_parent()
    _leave_no_core_file()
    connection = Connection(channel)
    with mmap.mmap(board, POSITION.size) as position, contextlib.suppress(EOFError, OSError):
        simulator = _load(connection)
        while connection.poll(IDLE_SECONDS):
            piece, alone = connection.recv()
            _simulate(connection, position, simulator, piece, alone=alone)


def _simulate(connection: Connection, position: mmap.mmap, simulator: Any, piece: Any, *, alone: bool) -> None:
    """Simulate a piece, and send finished rows every now and then."""
    from unle.simulators.piece import run_piece

    worker, known_names = f"{socket.gethostname()}:{os.getpid()}", {}
    waiting, done, sent = [], 0, time.monotonic()
    position[:] = POSITION.pack(0)
    for finished in run_piece(simulator, piece, alone=alone):
        for outcome in finished:  # equal names are one object: pickle then sends them once
            names = known_names.setdefault(outcome.names, outcome.names)
            waiting.append(outcome._replace(worker=worker, names=names))
        done += len(finished)
        position[:] = POSITION.pack(done)
        if time.monotonic() - sent > FLUSH_SECONDS or done == len(piece.ids):
            connection.send(waiting)
            waiting, sent = [], time.monotonic()
    position[:] = POSITION.pack(NO_POSITION)


def _load(connection: Connection) -> Any:
    """Receive the simulator; answer with the traceback if that fails."""
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
