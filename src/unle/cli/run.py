"""`unle run`: simulate, fit, and draw from the posterior, all kept in one directory; `unle resume`: go on with it.

A run goes on after a crash, a kill or Ctrl-C.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from unle.cli.check import findings_kept, lacks_report, report_after, show_verdict
from unle.cli.console import Stages, plain_ending, refuse_missing, say
from unle.cli.output import RunEnd, saved_so_far, show_draws, show_end
from unle.cli.settings import Dask, ExecutorOptions, RunSettings, Workers, takes_settings
from unle.cli.simulate import simulate_only
from unle.errors import InputError
from unle.progress import progress, tell

EXAMPLE = "Example:  unle run two_moons --observation 1 --check"
RESUME_EXAMPLE = "Example:  unle resume runs/model --workers 4"


@takes_settings
def run(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A built-in task, or a Python file with `prior` and `simulator`.")
    ],
    settings: RunSettings,
    observation: Annotated[
        str | None,
        typer.Option(help="File with x_o (.csv, .txt, .npy, .json), or the number of a task's observation, 1 to 10."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Run directory.  [default: runs/MODEL]", show_default=False)] = None,
    workers: Workers = None,
    dask: Dask = None,
    simulations: Annotated[
        Path | None,
        typer.Option(help="Use these simulations (.npz, .csv, .parquet, or a run directory) instead of simulating."),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Score a task's draws against exact ones (C2ST).")] = False,  # noqa: FBT002
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,  # noqa: FBT002
    with_report: Annotated[  # noqa: FBT002
        bool, typer.Option("--report/--no-report", help="Check the run at its end and write DIR/report.html.")
    ] = True,
) -> None:
    """Simulate, fit a likelihood, and draw from the posterior.

    MODEL is a built-in task (see `unle tasks`) or a Python file that defines `prior`, `simulator(theta, rng)` and,
    optionally, the observation `x_o`. Without an observation the likelihood is fitted and saved for `unle sample`. The
    run directory keeps everything: `unle resume DIR`, or the same command again, goes on where the last one stopped;
    with a larger --budget it goes on from the simulations that are there.
    """
    directory = Path("runs") / Path(model).stem if out is None else out
    with plain_ending(lambda: saved_so_far(directory)):
        refuse_missing(observation, simulations)
        tell(f"{model}: results go to {directory}")
        with progress("Loading"):
            from unle.cli import inference
            from unle.cli.model import load_model

            loaded = load_model(model)
        x_o = _observation(observation, loaded, model, check=check)
        given = None if simulations is None else _load(simulations, loaded.prior.names)
        request = inference.Request(
            model=loaded,
            settings=inference.as_begun(settings, directory).with_defaults(None if given is None else len(given)),
            x_o=x_o,
            simulations=given,
            simulations_sha256=None if given is None else given.digest(),
        )
        finish(
            directory, request, ExecutorOptions(workers, dask), check=check, as_json=as_json, with_report=with_report
        )


def finish(
    directory: Path, request: Any, executor: ExecutorOptions, *, check: bool, as_json: bool, with_report: bool
) -> None:
    """Do what the directory of a request lacks, and print the result."""
    from unle.cli import inference

    kept = inference.open_run(directory, request)
    request = replace(request, settings=RunSettings.from_record(kept.settings))  # a top-up may have added rounds
    stages = Stages()
    _, draws = inference.infer(request, kept, stages, executor)
    done = not stages.seconds
    to_check = with_report and (not done or lacks_report(kept))
    if done:
        rest = "its checks are still to be made" if to_check else "complete; nothing was repeated"
        say(f"{directory} holds this run already, {rest}.")
    summary = show_draws(directory, draws, as_json=as_json)
    score = inference.check_exact(request, draws, stages) if check and draws is not None else None
    if to_check:
        findings = report_after(kept, request.model, stages)
    else:
        findings = findings_kept(kept) if done else None
    show_end(directory, RunEnd(draws, summary, stages, score, findings, was_done=done), as_json=as_json)
    if findings is not None:  # at the end, where it is read
        show_verdict(findings, str(directory))


def _observation(text: str | None, loaded: Any, model: str, *, check: bool) -> Any:
    """Return x_o from the command line, from the model, or None."""
    from unle.cli.observation import as_observation, read_observation

    if text is not None:
        x_o = read_observation(text, loaded.task)
    else:
        x_o = None if loaded.x_o is None else as_observation(loaded.x_o, f"`x_o` in {model}")
    if check and (loaded.task is None or x_o is None):
        raise InputError("expected a built-in task and an observation with --check; try --observation 1.")
    if check and loaded.task.draw_posterior is None:
        raise InputError(f"expected a task whose exact posterior is known with --check; that of {model} is not.")
    return x_o


def _load(path: Path, names: Sequence[str]) -> Any:
    """Read simulations; in a table whose columns are not called theta..., the prior's names say which are."""
    from unle.simulators import Simulations

    try:
        return Simulations.load(path)
    except InputError:
        return Simulations.load(path, parameters=names)


def resume(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A run directory.")],
    model: Annotated[
        str | None,
        typer.Argument(metavar="MODEL", help="The model file, if it was moved or the run was begun elsewhere."),
    ] = None,
    workers: Workers = None,
    dask: Dask = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,  # noqa: FBT002
    with_report: Annotated[  # noqa: FBT002
        bool, typer.Option("--report/--no-report", help="Check the run at its end and write DIR/report.html.")
    ] = True,
) -> None:
    """Go on with a run at the stage where it stopped: simulating, training or sampling.

    Nothing that was simulated is simulated again, and the result is the one that the uninterrupted run would have had.
    The settings are those the run was begun with; only where it simulates may be chosen anew.
    """
    with plain_ending(lambda: saved_so_far(directory)):
        tell(f"{directory}: going on")
        with progress("Loading"):
            from unle.cli.model import model_of_run
            from unle.store import RunDirectory

            run = RunDirectory.open(directory)
            loaded, executor = model_of_run(run, model, needed=True), ExecutorOptions(workers, dask)
        if run.settings.get("method") == "simulate":
            simulate_only(loaded, run.settings, directory, executor, as_json=as_json)
            return
        request = _request(loaded, run.settings)
        finish(directory, request, executor, check=False, as_json=as_json, with_report=with_report)


def _request(model: Any, record: dict[str, Any]) -> Any:
    from unle.cli.inference import Request
    from unle.cli.observation import Observation
    from unle.errors import StoreError

    try:
        x_o = Observation.from_record(record)
        imported = record["simulations_sha256"]
        return Request(model, RunSettings.from_record(record), x_o, simulations_sha256=imported)
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"the settings of this run are damaged, or of another version of unle ({error}).") from None
