"""Small files that are never half written: JSON in, JSON out, replaced in one step.

A file is first written in full beside its destination, flushed to the disk, and then moved over it by `os.replace`,
which is atomic: a reader sees the old content or the new.
"""

import hashlib
import json
import math
import os
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from unle.errors import InputError, StoreError

_VERSIONED = ("unle", "jax", "jaxlib", "equinox", "optax", "blackjax", "numpyro", "numpy")


def write_atomically(path: str | Path, content: bytes) -> None:
    """Replace the file at `path` by `content`, all or nothing.

    Args:
        path: the destination; its directory must exist.
        content: the whole new content.

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
    """Read a JSON file.

    Raises:
        StoreError: the file is missing, unreadable, or not JSON.
    """
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
    """Read what `write_sealed` wrote, without the check sum.

    Raises:
        StoreError: the file is missing, damaged, or was altered.
    """
    content = read_json(path)
    if not isinstance(content, dict):
        raise StoreError(f"{path} is damaged: it holds no JSON object.")
    same_text = Path(path).read_bytes() == _text(content)  # not another byte, even if the meaning is the same
    seal = content.pop("sha256", None)
    if seal != _digest(content) or not same_text:
        raise StoreError(f"{path} is damaged or was altered: its check sum does not fit.")
    return content


def sha256_of(file: Path) -> str:
    """Return the SHA-256 of a file's content.

    Raises:
        StoreError: the file cannot be read.
    """
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
