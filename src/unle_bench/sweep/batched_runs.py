"""Runs side by side in one program: what several threads ask for at the same time is computed at once.

A fit is a few large programs, and decisions between them that are made on the host.  Fits that differ in their numbers
alone, such as those of several seeds, ask for the same programs of the same shapes, and one of them leaves most of an
accelerator idle.  Each fit has a thread and knows nothing of the others.  When all threads wait for a program, those
that are least far go on, in one call vmapped over them; the others wait until they are caught up with.  On the host one
thread runs at a time, from one large program to the next.
"""

import contextvars
import functools
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from unle.compiling import RUNNER, large_program
from unle.errors import UnleWarning

Result = TypeVar("Result")


def run_together(functions: Sequence[Callable[[], Result]]) -> list[Result]:
    """Call functions, each in a thread, and compute at once what they have in common.

    Args:
        functions: of no arguments.

    Returns:
        Their results, in order.

    Raises:
        Exception: what the first of the functions that failed has raised, after all of them have ended.

    Example:
        >>> from unle_bench.sweep.batched_runs import run_together
        >>> run_together([lambda: 1, lambda: 2])
        [1, 2]
    """
    if len(functions) == 1:
        return [functions[0]()]
    batched = BatchedRuns(len(functions))
    ends: list[tuple[Any, BaseException | None]] = [(None, None)] * len(functions)

    def run(k: int) -> None:
        RUNNER.set(batched)
        with batched.turn:
            try:
                ends[k] = functions[k](), None
            except BaseException as error:  # noqa: BLE001  (raised again below, by the thread that asked)
                ends[k] = None, error
            finally:
                batched.leave()

    threads = [
        threading.Thread(target=contextvars.copy_context().run, args=(run, k), daemon=True)
        for k in range(len(functions))
    ]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException:  # Ctrl-C, say: no thread begins another program
        batched.stop()
        raise
    for _, error in ends:
        if error is not None:
            raise error
    return [result for result, _ in ends]


class Stopped(Exception):
    """Raised in a thread that must not go on."""


class BatchedRuns:
    """Collects what threads ask for, and runs it when all of them wait.

    Args:
        threads: how many there are.

    Attributes:
        turn: held by the thread that runs, let go of while it waits.
        sizes: for how many threads at a time programs have run, in order.
    """

    def __init__(self, threads: int):
        self.turn = threading.Condition()
        self.sizes: list[int] = []
        self._threads = self._running = threads
        self._stopped = False
        self._waiting: list[_Request] = []
        self._stages: dict[_Kind, int] = {}  # in the order in which they were first asked for
        self._too_large: set[_Kind] = set()

    def __call__(self, program: large_program, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Wait until the program has run with these arguments, among others, and return its result."""
        request = _Request(program, args, kwargs)
        self._stages.setdefault(request.kind, len(self._stages))
        self._waiting.append(request)
        self._run_if_all_wait()
        while not (request.done or self._stopped):
            self.turn.wait()
        if request.error is not None:
            raise request.error
        if not request.done:
            raise Stopped
        return request.result

    def leave(self) -> None:
        """Say that a thread will ask for nothing more."""
        self._running -= 1
        self._run_if_all_wait()

    def stop(self) -> None:
        """Let no thread go on."""
        self._stopped = True  # before its turn, which it may have to wait for
        with self.turn:
            self.turn.notify_all()

    def _run_if_all_wait(self) -> None:
        if self._stopped or not self._waiting or len(self._waiting) < self._running:
            return
        kind = min((request.kind for request in self._waiting), key=self._stages.__getitem__)
        group = [request for request in self._waiting if request.kind == kind]
        self._waiting = [request for request in self._waiting if request.kind != kind]
        self.sizes.append(len(group))
        self._run(group)
        self.turn.notify_all()

    def _run(self, group: list["_Request"]) -> None:
        kind, outside = group[0].kind, RUNNER.set(None)  # the program may call others while it is traced
        try:
            if kind not in self._too_large:
                try:
                    return self._run_together(group)
                except Exception as error:  # noqa: BLE001  (what fails alone as well is raised below)
                    self._too_large.add(kind)
                    warnings.warn(
                        f"{kind.program.function.__name__} of {self._threads} runs does not run as one program "
                        f"({type(error).__name__}: {error!s:.200}): they run one after the other; try `--together 1`.",
                        UnleWarning,
                        stacklevel=2,
                    )
            for request in group:
                request.run_alone()
        finally:
            RUNNER.reset(outside)

    def _run_together(self, group: list["_Request"]) -> None:
        """Run a program once for all of a group, filled up to one size: others would be compiled anew."""
        numbers = [group[k % len(group)].numbers for k in range(self._threads)]
        results = jax.block_until_ready(_vmapped(group[0].kind.program)(numbers, group[0].rest))
        for request, result in zip(group, results, strict=False):  # the rest fills up
            request.result, request.done = result, True


@functools.cache
def _vmapped(program: large_program) -> Callable:
    """Return a program of a list of arguments, each split into its numbers and the rest, to a list of results."""

    def together(numbers: list[Any], rest: Any) -> list[Any]:
        def one(own: Any) -> Any:
            args, kwargs = eqx.combine(own, rest)
            return program.function(*args, **kwargs)

        results = eqx.filter_vmap(one)(jax.tree.map(lambda *leaves: jnp.stack(leaves), *numbers))
        arrays, others = eqx.partition(results, eqx.is_array)
        return [eqx.combine(jax.tree.map(lambda leaf: leaf[k], arrays), others) for k in range(len(numbers))]  # noqa: B023

    return program.jit(together)


class _Request:
    """A call of a program.

    Attributes:
        numbers: the arrays among its arguments.
        rest: all else.
        kind: equal for calls that can be computed at once.
    """

    def __init__(self, program: large_program, args: tuple, kwargs: dict[str, Any]):
        self._args, self._kwargs = args, kwargs
        self.numbers, self.rest = eqx.partition((args, kwargs), _is_number)
        self.kind = _Kind(program, self.numbers, self.rest)
        self.done, self.error, self.result = False, None, None

    def run_alone(self) -> None:
        """Run the program for this call only."""
        try:
            self.result = self.kind.program(*self._args, **self._kwargs)
        except Exception as error:  # noqa: BLE001  (raised by the thread that asked)
            self.error = error
        self.done = True


class _Kind:
    """A program, and all about its arguments but the numbers in arrays; what cannot be compared is equal to nothing."""

    def __init__(self, program: large_program, numbers: Any, rest: Any):
        self.program = program
        leaves, structure = jax.tree.flatten(rest)
        shapes = tuple((np.shape(leaf), leaf.dtype) for leaf in jax.tree.leaves(numbers))
        types = tuple(map(type, leaves))  # 1, 1.0 and True are equal, and do not compile alike
        self._parts = (program, jax.tree.structure(numbers), shapes, structure, tuple(leaves), types)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        try:
            return isinstance(other, _Kind) and bool(self._parts == other._parts)
        except Exception:  # noqa: BLE001  (arrays among the settings, say)
            return False

    def __hash__(self) -> int:
        return hash((self.program, self._parts[2]))


def _is_number(leaf: Any) -> bool:
    return eqx.is_array(leaf) or isinstance(leaf, np.ndarray | np.generic)
