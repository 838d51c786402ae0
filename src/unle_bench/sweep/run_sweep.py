"""Run the jobs of a sweep, in this process or in several, and survive the death of a worker.

On a CPU one process per core runs faster than one process with all cores: compiling uses one core, and so does most
of what the methods do.  An accelerator, which a single fit leaves mostly idle, runs several jobs as one program, and a
few processes may share it, each with its part of the cores: while one compiles or decides, others compute.
"""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import Any

from unle.store import locked
from unle_bench.results.results_store import ResultsStore
from unle_bench.sweep.sweep import Job, OnRow, Sweep, Team, fail_job, run_team

MOST_ATTEMPTS = 2  # of a job whose worker process dies
TICK = 0.5  # seconds between two looks at what has been finished
DIED = "the worker process died twice (out of memory?)"


def run_sweep(
    sweep: Sweep,
    path: Path,
    *,
    workers: int = 1,
    together: int = 1,
    on_row: OnRow | None = None,
    on_tick: Callable[[], None] = lambda: None,
) -> None:
    """Do everything that the results file lacks.

    Args:
        sweep: what to run.
        path: of the results file.
        workers: processes; one stays in this process.
        together: seeds that each of them runs as one program, of methods that allow it.
        on_row: called for every row that is written, if there is one worker only.
        on_tick: called twice a second, otherwise.
    """
    with locked(path.with_name(path.name + ".lock"), f"{path}"), ResultsStore(path) as results:
        _settle(sweep, results)
        sweep.check(results.finished())
        results.running(clear=True)
        teams = sweep.teams(results.finished(), together)
        if workers <= 1 or len(teams) <= 1:
            for team in teams:
                run_team(team, sweep, path, on_row)
                on_tick()
            return
        _in_processes(teams, sweep, path, results, workers=workers, on_tick=on_tick)


def _settle(sweep: Sweep, results: ResultsStore) -> None:
    """Refuse rows that must not stand beside those of the file: other draws, another classifier, other observations."""
    results.settle({"draws": sweep.scorer.draws, "classifier": sweep.scorer.classifier})
    there = {(row["task"], row["conditions"].get("observations")) for row in results.rows()}
    wanted = [(name, sweep.registry().task(name).observation_source) for name in sweep.tasks]
    for name, source in [*((name, source) for name, source in there if source), *wanted]:
        results.settle({f"observations of {name}": source})


def _in_processes(
    teams: list[Team], sweep: Sweep, path: Path, results: ResultsStore, *, workers: int, on_tick: Callable[[], None]
) -> None:
    sweep = replace(sweep, scorer=replace(sweep.scorer, jobs=1))
    attempts: dict[Job, int] = {}
    while teams:
        if _one_pool(teams, sweep, path, workers=workers, on_tick=on_tick):
            return
        # A worker died and took the pool with it.  Whoever was being run is under suspicion.
        suspects = set(results.running(clear=True))
        jobs = sweep.jobs(results.finished())
        alone = {team[0] for team in teams if len(team) == 1}
        for job in alone.intersection(jobs):
            if str(job) in suspects or any(name.startswith(str(job).rsplit("/", 1)[0] + "/") for name in suspects):
                attempts[job] = attempts.get(job, 0) + 1
        for job in [job for job in jobs if attempts.get(job, 0) >= MOST_ATTEMPTS]:
            fail_job(job, sweep, results, DIED)
        teams = sweep.teams(results.finished(), 1)  # from now on a death is held against single jobs


def _one_pool(teams: list[Team], sweep: Sweep, path: Path, *, workers: int, on_tick: Callable[[], None]) -> bool:
    """Run teams in a pool of processes; return False if a worker died."""
    context = multiprocessing.get_context("spawn")  # a fork of a process that has jax may hang
    numbers, stopped = context.Value("i", 0), context.Value("b", 0, lock=False)
    workers = min(workers, len(teams))
    with ProcessPoolExecutor(workers, context, _begin, (numbers, workers, os.getpid(), stopped)) as pool:
        pending: set[Future[Any]] = {pool.submit(run_team, team, sweep, path, workers=workers) for team in teams}
        try:
            while pending:
                done, pending = wait(pending, timeout=TICK, return_when=FIRST_COMPLETED)
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
    """Give a worker its part of the cores, and let it end with its parent, or when it is told to."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        with numbers.get_lock():
            mine = numbers.value
            numbers.value += 1
        os.sched_setaffinity(0, part_of(cores, mine, workers))  # before jax starts its threads
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
        time.sleep(TICK)
    os._exit(1)
