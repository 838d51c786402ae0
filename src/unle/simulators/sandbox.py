"""A simulator in a process of its own, so that whatever it does, only that process pays.

    driver thread, Dask worker, MPI rank ...            sandbox (a child process)
    Sandbox.run(order)   ---- theta, ids, seed --->     simulates row by row
                         <--- chunks of rows -----      writes on a board which row it is at

If the child dies (os.abort, a segmentation fault, the system's out-of-memory killer), or one simulation takes longer
than its time limit and the child is killed, the board tells which simulation it was. That one becomes an invalid row;
the others are simulated in a new child. A child is started as a fresh interpreter, never by fork: forking a process
that runs JAX deadlocks, and a fresh interpreter does not run the user's script again.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from multiprocessing.connection import Connection
from typing import NamedTuple

from unle.errors import UnleError
from unle.simulators.child import NOWHERE, POSITION, Order
from unle.simulators.chunk import Chunk, Row

TICK = 0.1  # seconds between two looks at the board, where there is a time limit
OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # somebody else's doing: worth another try
TRIES = 3  # of a simulation whose process was killed from outside

# Several processes that each use all cores for linear algebra would stand in each other's way.
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


class CannotLoad(UnleError):
    """The simulator could not be rebuilt in the process that should run it."""


class Stopped(UnleError):
    """The run is over; unfinished work was dropped."""


class _Fate(NamedTuple):
    """How a child ended: the reason for the row it was at, whether somebody else ended it, and after how long."""

    reason: str
    outside: bool
    seconds: float


class Sandbox:
    """One child process at a time, replaced whenever it dies.

    Args:
        blob: the simulator, serialised by `unle.simulators.serialise`.
        stop: an event that makes `run` give up.
    """

    def __init__(self, blob: bytes, stop: threading.Event | None = None):
        self.blob = blob
        self._stop = stop or threading.Event()
        self._process: subprocess.Popen | None = None
        self._connection: Connection | None = None
        self._board = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the object)
        self._board.write(POSITION.pack(NOWHERE))
        self._board.flush()

    def run(self, order: Order, *, timeout: float | None, block: bool) -> Chunk:
        """Simulate everything that is ordered, whatever happens on the way.

        Args:
            order: the simulations.
            timeout: seconds that one simulation may take; None waits for ever. A block may take
                that long times its number of rows.
            block: the simulator is a batched one, and works on all of these rows in one call.

        Returns:
            One row per simulation.

        Raises:
            CannotLoad: the simulator cannot be rebuilt in a new process.
            Stopped: the run was stopped from elsewhere.
        """
        parts: list[Chunk] = []
        start, tries = 0, 1
        while start < len(order.ids):
            base = start
            limit = timeout * len(order.ids) if timeout and block and not order.alone else timeout
            finished, fate = self._attempt(order.between(start, len(order.ids)), limit)
            parts += finished
            start += sum(map(len, finished))
            if fate is None:
                continue
            if block and not order.alone:
                order = order._replace(alone=True)  # find out which row of the block it was, each by itself
                continue
            guilty = base + self._position()
            if guilty > start:  # rows that were finished, but not sent yet
                parts.append(self.run(order.between(start, guilty), timeout=timeout, block=block))
                start, tries = guilty, 1
            if fate.outside and tries < TRIES:
                tries += 1
            elif guilty < len(order.ids):
                parts.append(Chunk.of([Row(None, fate.reason, fate.seconds)]))
                start, tries = start + 1, 1
        return Chunk.joined(parts)

    def close(self) -> None:
        """End the child."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)  # with whatever it has started
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        if self._connection is not None:
            self._connection.close()
        self._process = self._connection = None

    def __del__(self):
        with contextlib.suppress(Exception):
            self.close()

    def _attempt(self, order: Order, limit: float | None) -> tuple[list[Chunk], _Fate | None]:
        """Return what one child finished, and what became of it: None if it lived."""
        connection = self._ready()
        finished: list[Chunk] = []
        left = len(order.ids)
        os.pwrite(self._board.fileno(), POSITION.pack(0), 0)
        last, since = 0, time.monotonic()
        try:
            connection.send(order)
            while left:
                if connection.poll(TICK):
                    chunk = connection.recv()
                    finished.append(chunk)
                    left -= len(chunk)
                if self._stop.is_set():
                    self.close()
                    raise Stopped("the run was stopped.")
                now, position = time.monotonic(), self._position()
                if position != last:
                    last, since = position, now
                elif limit is not None and left and now - since > limit:
                    self.close()
                    return finished, _Fate(f"timed out: more than {limit:g} s", outside=False, seconds=now - since)
        except (EOFError, OSError):
            return finished, self._fate(time.monotonic() - since)
        return finished, None

    def _position(self) -> int:
        return POSITION.unpack(os.pread(self._board.fileno(), POSITION.size, 0))[0]

    def _fate(self, seconds: float) -> _Fate:
        """Say how the child died."""
        assert self._process is not None
        code = self._process.wait()
        self.close()
        if code >= 0:
            return _Fate(f"crashed: the process ended with status {code}", outside=False, seconds=seconds)
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        return _Fate(f"crashed: killed by {name}", outside=-code in OUTSIDE, seconds=seconds)

    def _ready(self) -> Connection:
        """Return the connection to a living child."""
        if self._process is not None and self._process.poll() is not None:
            self.close()  # it was idle for too long, or was killed while idle
        if self._connection is not None:
            return self._connection
        ours, theirs = socket.socketpair()
        with theirs:
            code = (
                f"import sys; sys.path[:] = {sys.path!r}; sys.argv[:] = {sys.argv!r}; "
                f"from unle.simulators.child import main; main({theirs.fileno()}, {self._board.fileno()})"
            )
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.PIPE,  # held open as the child's lifeline
                pass_fds=[theirs.fileno(), self._board.fileno()],
                start_new_session=True,  # Ctrl-C is the driver's business
                env={**{name: "1" for name in _ONE_THREAD}, **os.environ},
            )
        self._connection = Connection(ours.detach())
        try:
            self._connection.send_bytes(self.blob)
            trouble = self._connection.recv()
        except (EOFError, OSError):
            raise OSError(f"a simulation process could not be started: {self._fate(0.0).reason}.") from None
        if trouble:
            self.close()
            raise CannotLoad(trouble)
        return self._connection
