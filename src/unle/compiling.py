"""What is compiled, how and when, and what need not be.

A large program takes a processor as long as training does, and needs the shapes of its arrays only: with a second core
the next program is ready when the one before it ends.

Small programs are better not made at all.  `jax.numpy.asarray` compiles one for every new shape and type.  That is
nothing once, but a fit begins with dozens of them, which together take seconds, most on a GPU.  So arrays and keys are
made on the host (`on_device`, `split`, `keys`), where a program that runs once is ready sooner.
"""

import functools
import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key, PRNGKeyArray

from unle.compile_cache import enable_compile_cache
from unle.progress import activity

__all__ = [
    "PROGRAMS",
    "RUNNER",
    "cores",
    "key_of",
    "keys",
    "large_program",
    "meanwhile",
    "on_device",
    "on_host",
    "split",
]

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

    An error is ignored here: the program raises it again when it is called.
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


def on_device(values: Any, dtype: Any = np.float32) -> Array:
    """Return the values as a JAX array, converted on the host.

    Example:
        >>> from unle.compiling import on_device
        >>> on_device([1.0, 2.0]).dtype
        dtype('float32')
    """
    return jax.device_put(np.asarray(values, dtype))


def key_of(seed: int) -> PRNGKeyArray:
    """Return `jax.random.key(seed)`, made on the host.

    Example:
        >>> import jax.random as jr
        >>> from unle.compiling import key_of
        >>> bool(key_of(7) == jr.key(7))
        True
    """
    if jax.config.jax_default_prng_impl != "threefry2x32" or not 0 <= seed < 2**31:  # pyright: ignore[reportAttributeAccessIssue]
        return jr.key(seed)
    return jr.wrap_key_data(jax.device_put(np.array([0, seed], np.uint32)))


def split(key: PRNGKeyArray, n: int) -> tuple[PRNGKeyArray, ...]:
    """Return n independent keys, made on the host.

    Example:
        >>> import jax.random as jr
        >>> from unle.compiling import split
        >>> [key.shape for key in split(jr.key(0), 2)]
        [(), ()]
    """
    return tuple(map(jr.wrap_key_data, _words(key, n)))


def keys(key: PRNGKeyArray, *shape: int) -> Key[Array, "..."]:
    """Return an array of independent keys, made on the host: those of `split`, in order.

    Example:
        >>> import jax.random as jr
        >>> from unle.compiling import keys
        >>> keys(jr.key(0), 4, 2).shape
        (4, 2)
    """
    words = _words(key, math.prod(shape))
    return jr.wrap_key_data(jax.device_put(words.reshape(*shape, words.shape[1])))


def _words(key: PRNGKeyArray, n: int) -> np.ndarray:
    # A program of the device that splits keys takes a quarter of a second to compile, for every number of them.
    data = np.asarray(jr.key_data(key))
    return np.random.SeedSequence(data.tolist()).generate_state(n * data.size).reshape(n, data.size)


def on_host() -> AbstractContextManager[Any]:
    """Run the programs of the block on the host, for work that is done once per fit; their results are left there."""
    try:
        host = jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # JAX was told to leave the host alone
        return nullcontext()
    return jax.default_device(host)
