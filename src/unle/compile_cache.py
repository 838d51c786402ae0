"""Compiled programs are kept on disk, so that the next process need not compile them again.

They lie in `$UNLE_CACHE`, else in `$XDG_CACHE_HOME/unle`, else in `~/.cache/unle`; `UNLE_CACHE=0` keeps none.  A folder
of programs that you gave to JAX itself (`JAX_COMPILATION_CACHE_DIR`) is left as it is.
"""

import hashlib
import os
import platform
from pathlib import Path

import jax

__all__ = ["cache_folder", "enable_compile_cache"]

VARIABLE = "UNLE_CACHE"
SHORTEST_S = 0.2  # seconds; what compiles faster is not kept
MOST_BYTES = 2**30  # of all programs together; the oldest are removed


def enable_compile_cache() -> Path | None:
    """Let JAX keep what it compiles in the user's cache folder; return the folder, or None if it may not."""
    folder = cache_folder()
    if folder is None or jax.config.jax_compilation_cache_dir is not None:  # pyright: ignore[reportAttributeAccessIssue]
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        remove_oldest(folder, MOST_BYTES)
    except OSError:  # a home that cannot be written to
        return None
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", SHORTEST_S)
    return folder


def cache_folder() -> Path | None:
    """Return the folder for so many processors of this kind; None if no programs are kept."""
    chosen = os.environ.get(VARIABLE)
    if chosen == "0":
        return None
    root = Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unle"
    return root / f"{platform.machine()}-{_processor()}-{_cores()}"


def _cores() -> int:
    """Return how many processors this process may use: a program is compiled for that many."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def remove_oldest(folder: Path, most: int) -> None:
    """Remove the programs that were written first, until the others take no more than so many bytes."""
    files = sorted((file.stat().st_mtime, file.stat().st_size, file) for file in folder.iterdir() if file.is_file())
    excess = sum(size for _, size, _ in files) - most
    for _, size, file in files:
        if excess <= 0:
            return
        file.unlink(missing_ok=True)
        excess -= size


def _processor() -> str:
    """Return a short code for the abilities of the processor: homes may be shared by machines of several kinds."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
        abilities = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        abilities = platform.processor()
    return hashlib.sha256(abilities.encode()).hexdigest()[:8]
