"""One process at a time: a lock that the system releases when its process ends, also after kill -9."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from unle.errors import StoreError

try:
    import fcntl
except ImportError:  # not on Windows, where two processes on one directory are the user's responsibility
    fcntl = None

TRIES, SECONDS_BETWEEN_TRIES = 5, 0.05  # `held` takes the lock for a moment


@contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Hold a lock for the duration of the block.

    The file stays; only the lock on it matters.

    Args:
        path: of the lock file.
        what: is locked, for the message.

    Raises:
        StoreError: another process holds the lock, or the file cannot be written.
    """
    try:
        file = open(path, "a+", encoding="utf-8")  # noqa: SIM115  (closed below)
    except OSError as error:
        raise StoreError(f"{what} cannot be used: {path} could not be written: {error.strerror or error}.") from error
    with file:
        if fcntl is not None:
            _take(file, what)
        file.truncate(0)
        file.write(this_process())
        file.flush()
        yield


def _take(file: IO[str], what: str) -> None:
    assert fcntl is not None
    for attempt in range(TRIES):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if attempt < TRIES - 1:
                time.sleep(SECONDS_BETWEEN_TRIES)
        except OSError as error:
            raise StoreError(f"{what} cannot be locked: {error.strerror or error}.") from error
    file.seek(0)
    holder = file.read(100).strip() or "another process"
    raise StoreError(f"{what} is in use by {holder}; wait for it, or use another directory.")


def this_process() -> str:
    """Return what is written into the lock file: which process holds it, on which machine."""
    return f"process {os.getpid()} on {this_machine()}"


def this_machine() -> str:
    """Return the name of this computer."""
    return os.uname().nodename if hasattr(os, "uname") else "this machine"


def last_holder(path: Path) -> str:
    """Return which process holds the lock, or held it last; empty if none ever did."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def last_held_here(path: Path) -> bool:
    """Return whether the process that holds the lock, or held it last, is one of this machine."""
    return last_holder(path).endswith(f" on {this_machine()}")


def held(path: Path) -> bool | None:
    """Return whether some process holds the lock now; None where the system does not say.

    Nothing is written. The lock is taken for a moment, shared with other readers.
    """
    if fcntl is None:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (BlockingIOError, FileNotFoundError) as error:
        return isinstance(error, BlockingIOError)
    except OSError:
        return None
    return False
