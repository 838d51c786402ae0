"""One process at a time: a lock that vanishes with its holder, however that dies."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from unle.errors import StoreError

try:
    import fcntl
except ImportError:  # not on Windows, where two processes on one directory are the user's responsibility
    fcntl = None


@contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Hold a lock for the duration of the block.

    The system releases it when the process ends, also after kill -9. The file stays; only the lock on it matters.

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
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                holder = file.read(100).strip() or "another process"
                raise StoreError(f"{what} is in use by {holder}; wait for it, or use another directory.") from None
            except OSError as error:
                raise StoreError(f"{what} cannot be locked: {error.strerror or error}.") from error
        file.truncate(0)
        file.write(f"process {os.getpid()} on {os.uname().nodename}" if hasattr(os, "uname") else "another process")
        file.flush()
        yield
