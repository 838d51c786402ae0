"""A simulator in a process of its own, so that a crash or a hanging simulation costs that process only.

    driver thread, Dask worker, MPI rank ...            sandbox (a child process)
    Sandbox.run(piece)   ---- theta, ids, seed --->     simulates row by row
                         <--- finished rows -------     writes on a board which row it is at

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
from unle.simulators.child import NO_POSITION, POSITION
from unle.simulators.piece import Outcome, Piece

POLL_SECONDS = 0.1  # between two looks at the board
OUTSIDE_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # sent by others: worth another try
TRIES = 3  # of a simulation whose process was killed from outside

# Several processes that each use all cores for linear algebra would slow each other down.
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


class CannotLoad(UnleError):
    """The simulator could not be rebuilt in the process that should run it."""


class Stopped(UnleError):
    """The run is over; unfinished work was dropped."""


class _Death(NamedTuple):
    """How a child ended: the reason for the row it was at, whether it was killed from outside, and after how long."""

    reason: str
    from_outside: bool
    seconds: float


class Sandbox:
    """One child process at a time, replaced whenever it dies; the event `stop` makes `run` give up."""

    def __init__(self, blob: bytes, stop: threading.Event | None = None):
        self.blob = blob
        self._stop = stop or threading.Event()
        self._process: subprocess.Popen | None = None
        self._connection: Connection | None = None
        self._board = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the object)
        self._board.write(POSITION.pack(NO_POSITION))
        self._board.flush()

    def run(self, piece: Piece, *, timeout: float | None, block: bool) -> list[Outcome]:
        """Simulate the whole piece, one outcome per simulation, also if the simulator crashes.

        `timeout` is in seconds for one simulation.  A block, all rows in one call of a batched simulator, may take that
        long times its number of rows.
        """
        outcomes: list[Outcome] = []
        if block:
            limit = None if timeout is None else timeout * len(piece.ids)
            outcomes, death = self._attempt(piece, limit, alone=False)
            if death is None:
                return outcomes
            outcomes = []  # a row of the block is to blame: find it, each row by itself
        tries = 1
        while len(outcomes) < len(piece.ids):
            first = len(outcomes)
            finished, death = self._attempt(piece.take(slice(first, None)), timeout, alone=True)
            outcomes += finished
            if death is None:
                continue
            guilty = first + self._position()
            if guilty > len(outcomes):  # rows that were finished, but not sent yet
                outcomes += self.run(piece.take(slice(len(outcomes), guilty)), timeout=timeout, block=False)
                tries = 1
            if death.from_outside and tries < TRIES:
                tries += 1
            elif guilty < len(piece.ids):
                outcomes.append(Outcome(None, death.reason, death.seconds))
                tries = 1
        return outcomes

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

    def _attempt(self, piece: Piece, limit: float | None, *, alone: bool) -> tuple[list[Outcome], _Death | None]:
        """Return what one child finished, and how it died: None if it lived."""
        connection = self._ready()
        finished: list[Outcome] = []
        os.pwrite(self._board.fileno(), POSITION.pack(0), 0)
        last, since = 0, time.monotonic()
        try:
            connection.send((piece, alone))
            while len(finished) < len(piece.ids):
                if connection.poll(POLL_SECONDS):
                    finished += connection.recv()
                if self._stop.is_set():
                    self.close()
                    raise Stopped("the run was stopped.")
                now, position = time.monotonic(), self._position()
                if position != last:
                    last, since = position, now
                elif limit is not None and len(finished) < len(piece.ids) and now - since > limit:
                    self.close()
                    reason = f"timed out: more than {limit:g} s"
                    return finished, _Death(reason, from_outside=False, seconds=now - since)
        except (EOFError, OSError):
            return finished, self._death(time.monotonic() - since)
        return finished, None

    def _position(self) -> int:
        return POSITION.unpack(os.pread(self._board.fileno(), POSITION.size, 0))[0]

    def _death(self, seconds: float) -> _Death:
        """Say how the child died."""
        assert self._process is not None
        code = self._process.wait()
        self.close()
        if code >= 0:
            return _Death(f"crashed: the process ended with status {code}", from_outside=False, seconds=seconds)
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        return _Death(f"crashed: killed by {name}", from_outside=-code in OUTSIDE_SIGNALS, seconds=seconds)

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
                start_new_session=True,  # Ctrl-C reaches the driver only
                env={**{name: "1" for name in _ONE_THREAD}, **os.environ},
            )
        self._connection = Connection(ours.detach())
        try:
            self._connection.send_bytes(self.blob)
            trouble = self._connection.recv()
        except (EOFError, OSError):
            raise OSError(f"a simulation process could not be started: {self._death(0.0).reason}.") from None
        if trouble:
            self.close()
            raise CannotLoad(trouble)
        return self._connection
