"""Files that are never half written, and never written by two processes at a time.

A small file, JSON in and JSON out, is first written in full beside its destination, flushed to the disk, and then moved
over it by `os.replace`, which is atomic: a reader sees the old content or the new.

A lock lets one process in at a time; the system releases it when its process ends, also after kill -9.
"""

import hashlib
import json
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import IO, Any

import numpy as np

from unle.errors import InputError, StoreError

_VERSIONED = ("unle", "jax", "jaxlib", "equinox", "optax", "blackjax", "numpyro", "numpy")


def write_atomically(path: str | Path, content: bytes) -> None:
    """Replace the file at `path` by `content`, all or nothing.

    Raises:
        StoreError: the file cannot be written; what was there before is still there.
    """
    path = Path(path)
    beside = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with open(beside, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise StoreError(f"{path} could not be written: {error.strerror or error}.") from error


def write_json(path: str | Path, value: Any) -> None:
    """Write `value` as an indented JSON file, atomically; see `plain` for what may be in it."""
    write_atomically(path, _text(plain(value)))


def read_json(path: str | Path) -> Any:
    """Read a JSON file; one that is missing or damaged is a `StoreError`."""
    try:
        return json.loads(Path(path).read_bytes())
    except OSError as error:
        raise StoreError(f"{path} could not be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} is damaged: it is not valid JSON ({error}).") from error


def write_sealed(path: str | Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object that carries a check sum of itself."""
    body = plain(content)
    write_json(path, {**body, "sha256": _digest(body)})


def read_sealed(path: str | Path) -> dict[str, Any]:
    """Read what `write_sealed` wrote, without the check sum; a file that was altered is a `StoreError`."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise StoreError(f"{path} is damaged: it holds no JSON object.")
    same_text = Path(path).read_bytes() == _text(content)  # not another byte, even if the meaning is the same
    seal = content.pop("sha256", None)
    if seal != _digest(content) or not same_text:
        raise StoreError(f"{path} is damaged or was altered: its check sum does not fit.")
    return content


def sha256_of(file: Path) -> str:
    """Return the SHA-256 of a file's content."""
    try:
        with open(file, "rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        raise StoreError(f"{file} could not be read: {error.strerror or error}.") from error


def _text(value: Any) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def plain(value: Any) -> Any:
    """Return `value` in terms of what JSON has: dict, list, str, int, float, bool, None.

    Arrays and tuples become lists, paths become strings. Floats that are not finite, which JSON lacks, become
    the strings "nan", "inf" and "-inf", which `float` turns back.

    Raises:
        InputError: something in `value` has no such form; the message names its type.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, np.generic) or hasattr(value, "__array__"):
        return plain(np.asarray(value).tolist())
    raise InputError(
        f"expected settings made of numbers, strings, lists and dictionaries; got a {type(value).__name__}; "
        "try a description of it as a string"
    )


def versions() -> dict[str, str]:
    """Return the versions of Python, of this library and of those it computes with."""
    numbers = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in _VERSIONED:
        try:
            numbers[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return numbers


try:
    import fcntl
except ImportError:  # not on Windows, where two processes on one directory are the user's responsibility
    fcntl = None

TRIES, SECONDS_BETWEEN_TRIES = 5, 0.05  # `held` takes the lock for a moment


@contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Hold a lock for the duration of the block.

    The file stays; only the lock on it matters.

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
