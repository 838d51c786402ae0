"""Where a result comes from: when it was made, with which code, and on which machine."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from unle.store import versions

SWITCH = "UNLE_COMMIT"  # names the commit where the sources were copied without their history


def origin() -> dict[str, str]:
    """Return the date, the version of the library and the commit of its sources.

    Example:
        >>> from unle_bench.sweep.origin import origin
        >>> sorted(origin())
        ['commit', 'date', 'version']
    """
    return {"date": datetime.now(UTC).isoformat(timespec="seconds"), "version": _version(), "commit": commit()}


@cache
def commit() -> str:
    """Return the commit of the source tree, with a + if files differ from it; empty if it is unknown."""
    if SWITCH in os.environ:
        return os.environ[SWITCH]
    here = Path(__file__).parent
    try:
        asked = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
        return subprocess.run(asked, cwd=here, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


@cache
def machine() -> str:
    """Return the accelerator's name, or the processor's as far as the system tells it."""
    import jax

    device = jax.devices()[0]
    if device.platform != "cpu":
        return device.device_kind
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else f"CPU, {platform.machine()}"


def _version() -> str:
    return versions().get("unle", "")
