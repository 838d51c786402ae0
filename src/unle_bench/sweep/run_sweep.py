"""Run the jobs of a sweep, in this process or in several, and survive the death of a worker.

On a CPU one process per core runs faster than one process with all cores: compiling uses one core, and so does most
of what the methods do.  An accelerator, which a single fit leaves mostly idle, runs several jobs as one program, and a
few processes may share it, each with its part of the cores: while one compiles or decides, others compute.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from unle.store import locked
from unle_bench.results.results_store import ResultsStore
from unle_bench.sweep.process_pool import run_in_pool
from unle_bench.sweep.sweep import Job, OnRow, Sweep, Team, fail_job, run_team

MOST_ATTEMPTS = 2  # of a job whose worker process dies
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
        calls = [partial(run_team, team, sweep, path, workers=min(workers, len(teams))) for team in teams]
        if run_in_pool(calls, workers=workers, on_tick=on_tick):
            return
        # A worker died and took the pool with it.  Any of the jobs that were running may be the cause.
        suspects = set(results.running(clear=True))
        jobs = sweep.jobs(results.finished())
        alone = {team[0] for team in teams if len(team) == 1}
        for job in alone.intersection(jobs):
            if str(job) in suspects or any(name.startswith(str(job).rsplit("/", 1)[0] + "/") for name in suspects):
                attempts[job] = attempts.get(job, 0) + 1
        for job in [job for job in jobs if attempts.get(job, 0) >= MOST_ATTEMPTS]:
            fail_job(job, sweep, results, DIED)
        teams = sweep.teams(results.finished(), 1)  # alone from now on: then another death has one cause
