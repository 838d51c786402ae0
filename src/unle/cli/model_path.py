"""Which model file a run directory belongs to: remembered in your own state folder, never in the directory itself.

`unle resume DIR` has to run the model file again. If its path were written in the directory, a run directory from
somebody else could make you run a file of their choice. So the directory only holds the file's check sum, and the path
is kept where only you write: `$UNLE_STATE`, else `$XDG_STATE_HOME/unle`, else `~/.local/state/unle`.
"""

import contextlib
import hashlib
import os
from pathlib import Path

from unle.errors import StoreError
from unle.store import read_json, write_json


def remember(directory: Path, model: Path) -> None:
    """Write down that this run directory belongs to this model file; where that is not possible, do without."""
    with contextlib.suppress(OSError):
        file = _file(directory)
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_json(file, {"directory": str(directory.resolve()), "model": str(model.resolve())})


def recall(directory: Path) -> Path | None:
    """Return the model file of a run directory that was begun on this account; None if that is not known."""
    try:
        known = read_json(_file(directory))
    except StoreError:
        return None
    if not isinstance(known, dict) or known.get("directory") != str(directory.resolve()):
        return None
    return Path(str(known.get("model")))


def _file(directory: Path) -> Path:
    name = hashlib.sha256(str(directory.resolve()).encode()).hexdigest()[:24]
    return _folder() / "runs" / f"{name}.json"


def _folder() -> Path:
    if own := os.environ.get("UNLE_STATE"):
        return Path(own)
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "unle"
