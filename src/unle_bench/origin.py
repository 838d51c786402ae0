"""Where a result comes from: when it was made, and with which code."""

import os
import subprocess
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from unle.store import versions

SWITCH = "UNLE_COMMIT"  # names the commit where the sources were copied without their history


def origin() -> dict[str, str]:
    """Return the date, the version of the library and the commit of its sources.

    Example:
        >>> from unle_bench.origin import origin
        >>> sorted(origin())
        ['commit', 'date', 'version']
    """
    return {"date": datetime.now(UTC).isoformat(timespec="seconds"), "version": _version(), "commit": commit()}


@cache
def commit() -> str:
    """Return the commit of the source tree, with a + if files differ from it; empty where nobody can tell."""
    if SWITCH in os.environ:
        return os.environ[SWITCH]
    here = Path(__file__).parent
    try:
        asked = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
        return subprocess.run(asked, cwd=here, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def _version() -> str:
    return versions().get("unle", "")
