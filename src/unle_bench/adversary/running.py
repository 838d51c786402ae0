"""All trials that a file lacks, in this process or in several side by side."""

import itertools
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from unle.errors import InputError
from unle.store import locked
from unle_bench.adversary.rows import append_row, key_of, mend, read_rows
from unle_bench.adversary.simulators import ADVERSARIES
from unle_bench.adversary.trial import KEY, METHODS, Key, Row, Trial, finished, run_trial
from unle_bench.running import part_of

SEEDS = (0, 1, 2)
DIED = "the worker process died (out of memory?)"

OnRow = Callable[[Row], None]
Group = tuple[Trial, ...]  # of one simulator and method: their programs have the same shapes, and are compiled once


def trials(
    simulators: Sequence[str] = (), methods: Sequence[str] = ("aunle", "sunle"), seeds: Sequence[int] = SEEDS
) -> list[Trial]:
    """Return the independent pieces of work.

    Args:
        simulators: names; all if there are none.
        methods: names.
        seeds: of whole runs; each brings its observation with it.
    """
    for kind, names, known in (("simulator", simulators, ADVERSARIES), ("method", methods, METHODS)):
        unknown = [name for name in names if name not in known]
        if unknown:
            raise InputError(f"expected a {kind} among {', '.join(known)}; got {', '.join(unknown)}.")
    chosen = tuple(dict.fromkeys(simulators)) or tuple(ADVERSARIES)
    return [Trial(*parts) for parts in itertools.product(chosen, dict.fromkeys(methods), dict.fromkeys(seeds))]


def run_adversary(wanted: Iterable[Trial], path: Path, *, jobs: int = 1, on_row: OnRow = lambda row: None) -> list[Row]:
    """Run what the file lacks, and return all rows of what is wanted.

    Args:
        wanted: the trials.
        path: of the file; a row is added as soon as it is there.
        jobs: processes side by side, each with its share of the cores; one stays in this process.
        on_row: called for every new row.
    """
    wanted = list(wanted)
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.with_name(path.name + ".lock"), f"{path}"):
        mend(path)
        left = _left(wanted, path)
        if jobs <= 1 or len(left) <= 1:
            for trial in left:
                row = run_trial(trial)
                append_row(path, row)
                on_row(row)
        elif not _in_pool(_groups(left), path, jobs, on_row):
            _one_by_one(wanted, path, on_row)
    keys = {trial.key for trial in wanted}
    return [row for row in read_rows(path) if key_of(row) in keys]


def _left(wanted: list[Trial], path: Path) -> list[Trial]:
    done: set[Key] = {key_of(row) for row in read_rows(path)}
    return [trial for trial in wanted if trial.key not in done]


def _groups(left: list[Trial]) -> list[Group]:
    found: dict[tuple[str, str], list[Trial]] = {}
    for trial in left:
        found.setdefault((trial.simulator, trial.method), []).append(trial)
    # The dearest first, so that no process is left alone with them at the end.
    return sorted(map(tuple, found.values()), key=lambda group: -_cost(group))


def _cost(group: Group) -> float:
    adversary = ADVERSARIES[group[0].simulator]
    return len(group) * adversary.prior.dim * (1 + adversary.simulations / 1000)


def _in_pool(groups: list[Group], path: Path, jobs: int, on_row: OnRow) -> bool:
    """Run groups in processes; return False if one of them died."""
    context = multiprocessing.get_context("spawn")  # a fork of a process that has jax may hang
    numbers, jobs = context.Value("i", 0), min(jobs, len(groups))
    with ProcessPoolExecutor(jobs, context, _begin, (numbers, jobs)) as pool:
        pending: set[Future[None]] = {pool.submit(_run_group, group, path) for group in groups}
        told: set[Key] = set()
        try:
            while pending:
                done, pending = wait(pending, timeout=1.0, return_when=FIRST_COMPLETED)
                for future in done:
                    future.result()
                wanted = {trial.key for group in groups for trial in group}
                for row in read_rows(path):
                    if key_of(row) in wanted - told:
                        told.add(key_of(row))
                        on_row(row)
        except BrokenProcessPool:
            return False
        except BaseException:
            for process in multiprocessing.active_children():  # those of this pool: a run of minutes is not waited for
                process.terminate()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return True


def _one_by_one(wanted: list[Trial], path: Path, on_row: OnRow) -> None:
    """After a death: every trial in a process of its own, so that another death has one cause."""
    for trial in _left(wanted, path):
        if not _in_pool([(trial,)], path, 1, on_row):
            row: Row = finished(dict(zip(KEY, trial.key, strict=True)) | {"outcome": DIED})
            append_row(path, row)
            on_row(row)


def _run_group(group: Group, path: Path) -> None:
    for trial in group:
        append_row(path, run_trial(trial, jobs=1))


def _begin(numbers: Any, jobs: int) -> None:
    """Give a process its share of the cores, before jax starts its threads."""
    if hasattr(os, "sched_setaffinity"):
        with numbers.get_lock():
            mine = numbers.value
            numbers.value += 1
        os.sched_setaffinity(0, part_of(sorted(os.sched_getaffinity(0)), mine, jobs))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent says what is to be done
