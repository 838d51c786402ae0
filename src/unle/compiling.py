"""How large programs are compiled: with options that suit them, and while something else runs.

Compiling takes a processor as long as training does, and needs the shapes of the arrays only: with a second core the
next program is ready when the one before it ends.
"""

import functools
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import equinox as eqx
import jax

from unle.compile_cache import enable_compile_cache
from unle.progress import activity

__all__ = ["PROGRAMS", "RUNNER", "cores", "large_program", "meanwhile"]

PRECOMPILE_VARIABLE = "UNLE_AHEAD"  # of the environment; set to 0, nothing is compiled before it is needed

# Compiler options by kind of machine.  Networks this small rarely win back what the compiler spends on them: on a GPU,
# a search for the fastest kernels; on a CPU, the last optimisations, a quarter of the time for code that is no faster.
# Deterministic kernels on a GPU: the same fit twice must be the same, or decisions near a threshold differ.
DETERMINISTIC = {"xla_gpu_deterministic_ops": True}
TRAINING_OPTIONS = {
    "gpu": {"xla_gpu_autotune_level": 0, **DETERMINISTIC},
    "cpu": {"xla_backend_optimization_level": 1},
}
# With large batches a search for the fastest among deterministic kernels pays.
LARGE_BATCH_OPTIONS = {**TRAINING_OPTIONS, "gpu": DETERMINISTIC}
# Without fused loops of the newer kind compiling takes two thirds of the time on a CPU.  Draws are as fast, but
# training would take a third longer.
SAMPLING_OPTIONS = {
    **TRAINING_OPTIONS,
    "cpu": {**TRAINING_OPTIONS["cpu"], "xla_cpu_use_fusion_emitters": False},
}
DEFAULT_OPTIONS = {}

# Where programs are kept, or None.  Before anything is compiled: JAX looks for its folder once.
PROGRAMS = enable_compile_cache()

COMPILING = "compiling"
BEGUN, ENDED = "/jax/core/compile/jaxpr_to_mlir_module_duration", "/jax/core/compile/backend_compile_duration"


def _show_compiling(event: str, duration_secs: float, **kwargs: Any) -> None:  # noqa: ARG001  (JAX names them)
    """Name it beside the progress bar: JAX tells when a program is ready for its compiler, and when it is compiled."""
    if event in (BEGUN, ENDED):
        activity(COMPILING if event == BEGUN else "")


jax.monitoring.register_event_duration_secs_listener(_show_compiling)

# Runs a large program in place of this thread: (program, args, kwargs) -> result.  None: the thread itself.
RUNNER: ContextVar[Callable[..., Any] | None] = ContextVar("runner", default=None)


class large_program:  # noqa: N801  (a decorator, like `jax.jit`)
    """Compile a function that is called directly, not inside of another compiled one.

    Options depend on the machine, which is looked up at the first call: an import must not claim a GPU.

    Args:
        function: what is compiled.
        options: for the compiler, by kind of machine.
    """

    def __init__(self, function: Callable, *, options: Mapping[str, dict[str, Any]] = SAMPLING_OPTIONS):
        self.function = function
        self._options = options
        functools.update_wrapper(self, function)

    def options(self) -> dict[str, Any]:
        """Return the options for this machine's compiler."""
        return _known(tuple(self._options.get(jax.default_backend(), {}).items()))

    def jit(self, function: Callable) -> Any:
        """Compile another function with the options of this one."""

        @functools.wraps(function)
        def traced(*args: Any, **kwargs: Any) -> Any:
            activity(COMPILING)  # runs while JAX traces the function, the first part of compiling it
            return function(*args, **kwargs)

        return eqx.filter_jit(traced, compiler_options=self.options())  # pyright: ignore[reportCallIssue]

    @functools.cached_property
    def _program(self) -> Any:
        return self.jit(self.function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program; the first call compiles it."""
        runner = RUNNER.get()
        return self._program(*args, **kwargs) if runner is None else runner(self, args, kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """Return what can be compiled without being run."""
        return self._program.lower(*args, **kwargs)


@functools.cache
def _known(options: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    """Return the options that this compiler has: they come and go."""
    try:
        jax.jit(lambda: 0).lower().compile(compiler_options=dict(options))
    except jax.errors.JaxRuntimeError:
        return {} if len(options) < 2 else {k: v for one in options for k, v in _known((one,)).items()}
    return dict(options)


def cores() -> int:
    """Return how many processors the machine has."""
    return os.cpu_count() or 1


@contextmanager
def meanwhile(compile_program: Callable[[], Any]) -> Iterator[None]:
    """Compile a program in a thread while the block runs, and wait for it at the end.

    Args:
        compile_program: compiles it.  An error is ignored here: the program raises it again when it is called.
    """
    if os.environ.get(PRECOMPILE_VARIABLE) == "0" or cores() < 2 or RUNNER.get() is not None:
        yield
        return
    thread = threading.Thread(target=_quietly, args=(compile_program,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        if thread.is_alive():
            activity(COMPILING)
        thread.join()
        activity("")


def _quietly(compile_program: Callable[[], Any]) -> None:
    try:
        compile_program()
    except Exception:  # noqa: BLE001, S110  (raised again by the program when it is called)
        pass
