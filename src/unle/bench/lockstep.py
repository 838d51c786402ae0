"""Runs side by side in one program: what several threads ask for at the same time is computed at once.

A fit is a few large programs, and decisions between them that are made on the host.  Fits that differ in their numbers
alone, such as those of several seeds, ask for the same programs of the same shapes, and an accelerator computes ten of
them in little more time than one.  Each fit has a thread and knows nothing of the others.  When all threads wait for a
program, those that are least far go on, in one call vmapped over them; the others wait until they are caught up with.
On the host one thread runs at a time, so that nothing has to be safe among threads, and libraries have all cores.
"""

import contextvars
import functools
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from unle.compiling import RUNNER, large_program

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
        >>> from unle.bench.lockstep import run_together
        >>> run_together([lambda: 1, lambda: 2])
        [1, 2]
    """
    if len(functions) == 1:
        return [functions[0]()]
    lockstep = Lockstep(len(functions))
    ends: list[tuple[Any, BaseException | None]] = [(None, None)] * len(functions)

    def run(k: int) -> None:
        RUNNER.set(lockstep)
        with lockstep.turn:
            try:
                ends[k] = functions[k](), None
            except BaseException as error:  # noqa: BLE001  (raised again below, by the thread that asked)
                ends[k] = None, error
            finally:
                lockstep.leave()

    threads = [
        threading.Thread(target=contextvars.copy_context().run, args=(run, k), daemon=True)
        for k in range(len(functions))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _, error in ends:
        if error is not None:
            raise error
    return [result for result, _ in ends]


class Lockstep:
    """Collects what threads ask for, and runs it when all of them wait.

    Args:
        threads: how many there are.

    Attributes:
        turn: held by the thread that runs, let go of while it waits.
        sizes: for how many threads at a time programs have run, in order.
    """

    def __init__(self, threads: int):
        self.sizes: list[int] = []
        self._threads = self._running = threads
        self._waiting: list[_Request] = []
        self.turn = threading.Condition()
        self._stages: dict[large_program, int] = {}  # in the order in which programs were first asked for
        self._place = _Place()

    def __call__(self, program: large_program, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Wait until the program has run with these arguments, among others, and return its result."""
        request = _Request(program, args, kwargs)
        request.place = self._place.at(self._stages.setdefault(program, len(self._stages)))
        self._waiting.append(request)
        self._run_if_all_wait()
        while not request.done:
            self.turn.wait()
        if request.error is not None:
            raise request.error
        return request.result

    def leave(self) -> None:
        """Say that a thread will ask for nothing more."""
        self._running -= 1
        self._run_if_all_wait()

    def _run_if_all_wait(self) -> None:
        if not self._waiting or len(self._waiting) < self._running:
            return
        behind = min(self._waiting, key=lambda request: request.place)
        group = [request for request in self._waiting if request.kind == behind.kind]
        self.sizes.append(len(group))
        self._run(group)
        self._waiting = [request for request in self._waiting if not request.done]
        self.turn.notify_all()

    def _run(self, group: list["_Request"]) -> None:
        outside = RUNNER.set(None)  # the program may call others while it is traced
        try:
            results = self._together(group)
        except Exception:  # noqa: BLE001  (too large for the memory together, say; what fails alone is told)
            for request in group:
                request.run_alone()
        else:
            for request, result in zip(group, results, strict=False):  # the rest fills up
                request.result, request.done = result, True
        finally:
            RUNNER.reset(outside)

    def _together(self, group: list["_Request"]) -> list[Any]:
        """Run a program once for all of a group, filled up to one size: others would be compiled anew."""
        first = group[0]
        numbers = [group[k % len(group)].numbers for k in range(self._threads)]
        return jax.block_until_ready(_vmapped(first.program)(numbers, first.rest))


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


class _Place(threading.local):
    """How far a thread is: which round it is in, and at which of the programs of a round."""

    round = stage = 0

    def at(self, stage: int) -> tuple[int, int]:
        """Go on to a stage, and return the place; a round begins with the first of all programs."""
        if stage == 0 < self.stage:
            self.round += 1
        self.stage = stage
        return self.round, self.stage


class _Request:
    """A call of a program.

    Attributes:
        numbers: the arrays among its arguments.
        rest: all else.
        kind: equal for calls that can be computed at once.
        place: how far the thread is that calls.
    """

    def __init__(self, program: large_program, args: tuple, kwargs: dict[str, Any]):
        self.program, self._args, self._kwargs = program, args, kwargs
        self.numbers, self.rest = eqx.partition((args, kwargs), _is_number)
        self.done, self.error, self.result, self.place = False, None, None, (0, 0)
        shapes = tuple((np.shape(leaf), leaf.dtype) for leaf in jax.tree.leaves(self.numbers))
        leaves, structure = jax.tree.flatten(self.rest)
        self.kind: Hashable = (program, jax.tree.structure(self.numbers), shapes, structure, tuple(leaves))
        try:
            hash(self.kind)
        except TypeError:  # nothing is known to be equal to it
            self.kind = object()

    def run_alone(self) -> None:
        """Run the program for this call only."""
        try:
            self.result = self.program(*self._args, **self._kwargs)
        except Exception as error:  # noqa: BLE001  (raised by the thread that asked)
            self.error = error
        self.done = True


def _is_number(leaf: Any) -> bool:
    return eqx.is_array(leaf) or isinstance(leaf, np.ndarray | np.generic)
