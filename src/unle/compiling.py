"""How the large programs are compiled: soon, and while something else runs.

Compiling takes a processor as long as training does, and does not need the numbers, only their shapes: with a second
core the next program is ready when the one before it ends.
"""

import functools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import equinox as eqx
import jax

SWITCH = "UNLE_AHEAD"  # set to 0, nothing is compiled before it is asked for

# Networks this small rarely win back what their compiler spends on them: on a GPU, a search for the fastest kernels; on
# a CPU, the last optimisations, a quarter of the time for code that is no faster.
QUICKLY = {"gpu": {"xla_gpu_autotune_level": 0}, "cpu": {"xla_backend_optimization_level": 1}}
SEARCHING = {**QUICKLY, "gpu": {}}


class jit_quickly:  # noqa: N801  (a decorator, like `jax.jit`)
    """Compile a function that is called as it is, not inside of another one that is compiled.

    How depends on the machine, which is not asked before the first call: an import must not claim a GPU.

    Args:
        function: what is compiled.
        search: whether the fastest kernels of a GPU are searched for, which pays for large batches.
    """

    def __init__(self, function: Callable, *, search: bool = False):
        self._function = function
        self._options = SEARCHING if search else QUICKLY
        functools.update_wrapper(self, function)

    @functools.cached_property
    def _program(self) -> Any:
        options = self._options.get(jax.default_backend(), {})
        return eqx.filter_jit(self._function, compiler_options=options)  # pyright: ignore[reportCallIssue]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program, compiled if need be."""
        return self._program(*args, **kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """Return what can be compiled without being run."""
        return self._program.lower(*args, **kwargs)


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
