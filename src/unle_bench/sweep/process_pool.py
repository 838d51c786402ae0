"""Calls in several processes, each with its part of the cores; a process may die without taking the others' results."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

SECONDS_BETWEEN_TICKS = 0.5


def run_in_pool(calls: Iterable[Callable[[], Any]], *, workers: int, on_tick: Callable[[], None]) -> bool:
    """Make calls in a pool of processes.

    Args:
        calls: functions that can be sent to another process.
        workers: how many processes at most.
        on_tick: called twice a second.

    Returns:
        False if a worker died and took the pool with it.
    """
    calls = list(calls)
    context = multiprocessing.get_context("spawn")  # a fork of a process that has jax may hang
    numbers, stopped = context.Value("i", 0), context.Value("b", 0, lock=False)
    workers = min(workers, len(calls))
    with ProcessPoolExecutor(workers, context, _begin, (numbers, workers, os.getpid(), stopped)) as pool:
        pending: set[Future[Any]] = {pool.submit(call) for call in calls}
        try:
            while pending:
                done, pending = wait(pending, timeout=SECONDS_BETWEEN_TICKS, return_when=FIRST_COMPLETED)
                on_tick()
                for future in done:
                    future.result()
        except BrokenProcessPool:
            return False
        except BaseException:
            stopped.value = 1  # Ctrl-C, say: a run of hours is not waited for
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return True


def _begin(numbers: Any, workers: int, parent: int, stopped: Any) -> None:
    """Give a worker its part of the cores, and let it end with its parent, or when the parent stops it."""
    if hasattr(os, "sched_setaffinity"):
        with numbers.get_lock():
            number = numbers.value
            numbers.value += 1
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, part_of(cores, number, workers))  # before jax starts its threads
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent says what is to be done
    threading.Thread(target=_end_with, args=(parent, stopped), daemon=True).start()


def part_of(cores: list[int], number: int, workers: int) -> set[int]:
    """Return the cores of one of several workers: as many for each as there are, at least one.

    Example:
        >>> [sorted(part_of([0, 1, 2, 3, 4], number, 2)) for number in range(2)]
        [[0, 2, 4], [1, 3]]
    """
    return set(cores[number % workers :: workers]) or {cores[number % len(cores)]}


def _end_with(parent: int, stopped: Any) -> None:
    while os.getppid() == parent and not stopped.value:
        time.sleep(SECONDS_BETWEEN_TICKS)
    os._exit(1)
