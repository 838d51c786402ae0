"""`unle resume`: go on with a run after a crash, a kill or Ctrl-C."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from unle.cli.console import Stages, plain_ending, say
from unle.cli.where import Dask, Where, Workers

EXAMPLE = "Example:  unle resume runs/model --workers 4"


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
    with plain_ending(lambda: _saved(directory)):
        from unle.cli import inference
        from unle.cli.report import report_after
        from unle.cli.run import report
        from unle.cli.simulate import simulate_only
        from unle.store import RunDirectory

        run = RunDirectory.open(directory)
        loaded = _model(directory, run.settings, model)
        where = Where(workers, dask)
        if run.settings.get("method") == "simulate":
            simulate_only(loaded, run.settings, directory, where, as_json=as_json)
            return
        request = _request(loaded, run.settings)
        kept = inference.open_run(directory, request)
        stages = Stages()
        _, drawn = inference.infer(request, kept, stages, where)
        findings = None
        if done := not stages.seconds:
            say(f"{directory} holds this run already, complete; nothing was repeated.")
        elif with_report:
            findings = report_after(kept, loaded)
        report(directory, drawn, stages, None, findings, as_json=as_json, done=done)


def _model(directory: Path, settings: dict[str, Any], given: str | None) -> Any:
    """Return the model that the run was begun with, and no other."""
    from unle.cli.model import load_model
    from unle.cli.whereabouts import recall
    from unle.errors import StoreError
    from unle.store import sha256_of

    name, expected = settings.get("model"), settings.get("model_sha256")
    if expected is None:
        return load_model(str(name))
    path = recall(directory) if given is None else Path(given)
    if path is None:
        raise StoreError(f"{directory} was not begun on this account; say which model: unle resume {directory} {name}")
    if not path.is_file():
        raise StoreError(f"the model {path} is gone; say where it is: unle resume {directory} PATH/{name}")
    if sha256_of(path) != expected:  # before anything in it is run
        raise StoreError(
            f"{path} has changed since this run began, and simulations of two versions must not be mixed; "
            "restore it, or begin a new run with another --out."
        )
    return replace(load_model(str(path)), name=name)  # a file may be renamed; its content counts


def _request(model: Any, settings: dict[str, Any]) -> Any:
    import numpy as np

    from unle.cli.inference import Request
    from unle.errors import StoreError

    try:
        return Request(
            model,
            budget=settings["budget"],
            x_o=None if settings["x_o"] is None else np.array(settings["x_o"], dtype=float),
            draws=settings["draws"],
            seed=settings["seed"],
            method=settings["method"],
            members=settings["members"],
            iterations=settings["iterations"],
            timeout=settings["timeout"],
            imported=settings["simulations_sha256"],
            rounds=settings["rounds"],
            posterior=settings["posterior"],
            flow=settings.get("flow"),
            sliced=settings.get("sliced"),
            memory=settings.get("memory"),
            every_round=settings.get("every_round"),
            repetition=settings.get("repetition"),
            paper=settings.get("paper"),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"the settings of this run are damaged, or of another version of unle ({error}).") from None


def _saved(directory: Path) -> str:
    from unle.cli.inference import saved_so_far

    return saved_so_far(directory)
