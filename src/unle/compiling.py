"""How the large programs are compiled: soon, and while something else runs.

Compiling takes a processor as long as training does, and does not need the numbers, only their shapes: with a second
core the next program is ready when the one before it ends.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import equinox as eqx

SWITCH = "UNLE_AHEAD"  # set to 0, nothing is compiled before it is asked for

# On a GPU the search for the fastest kernels takes longer than networks this small could ever win back.
QUICKLY = {"xla_gpu_autotune_level": 0}


def jit_quickly(function: Callable) -> Any:
    """Compile a function that is called as it is, not inside of another one that is compiled."""
    return eqx.filter_jit(function, compiler_options=QUICKLY)  # pyright: ignore[reportCallIssue]


def cores() -> int:
    """Return how many processors the machine has."""
    return os.cpu_count() or 1


@contextmanager
def meanwhile(compile_program: Callable[[], Any]) -> Iterator[None]:
    """Compile a program in a thread while the block runs, and wait for it at the end.

    Args:
        compile_program: what compiles it.  If it fails, so will the program when it is called, and say why there.
    """
    if os.environ.get(SWITCH) == "0" or cores() < 2:
        yield
        return
    thread = threading.Thread(target=_quietly, args=(compile_program,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _quietly(compile_program: Callable[[], Any]) -> None:
    try:
        compile_program()
    except Exception:  # noqa: BLE001, S110  (whoever calls the program meets it again, and is told)
        pass
