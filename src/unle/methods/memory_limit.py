"""How much memory the simulations of a fit may take, and how many rows that is.

Example:
    >>> from unle.methods.memory_limit import as_bytes
    >>> as_bytes("2GB"), as_bytes("1.5 MB"), as_bytes(4096)
    (2000000000, 1500000, 4096)
"""

import os
import re
from pathlib import Path

from unle.errors import InputError

SHARE = 0.5  # of the machine's memory that simulations may take if nothing is said
UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
# Measured: bytes that exist at a time, per row, in each stage of a fit.
COPIES = 16  # of a row in double precision while spaces are fitted
COPIES_OF_MEANS = 6  # while regressions are
PLACES = 28  # bytes of a row for its place in the split of a member, and in the order of a chunk
BESIDES = 100  # bytes of a row for its number, lot and reason
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def as_bytes(memory: int | float | str | None) -> int:
    """Return a number of bytes, given as such or as "500MB"; half of the memory of this machine or container for None.

    Raises:
        InputError: it is neither.
    """
    if memory is None:
        return int(SHARE * machine_memory())
    found = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([A-Za-z]*)\s*", str(memory))
    if isinstance(memory, bool) or found is None or found[2].upper() not in UNITS or float(found[1]) <= 0:
        raise InputError(f"expected `memory` to be a number of bytes, or such as 500MB or 2GB; got {memory!r}.")
    return int(float(found[1]) * UNITS[found[2].upper()])


def machine_memory() -> int:
    """Return the bytes of memory that this process could have: those of the machine, or of its container."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for file in LIMITS:
        try:
            found.append(int(Path(file).read_text(encoding="ascii")))
        except (OSError, ValueError):  # no container, or no limit
            continue
    return min(found)


def row_bytes(dim: int, width: int, *, members: int, work: int = 0) -> int:
    """Return how many bytes a simulation takes in memory while a model is fitted to it, at most.

    Every member keeps features of the data, up to twice as many as there are data; for `work` see
    `AbstractBaseTraining.work_per_row`.
    """
    numbers = dim + width
    fitting_spaces, fitting_means = 8 * COPIES * numbers, 8 * (COPIES_OF_MEANS * numbers + work)
    training = 12 * numbers + members * (16 * width + PLACES)
    return max(fitting_spaces, fitting_means, training) + 8 * dim + BESIDES
