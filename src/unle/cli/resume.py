"""`unle resume`: go on with a run after a crash, a kill or Ctrl-C."""

from pathlib import Path
from typing import Annotated, Any

import typer

from unle.cli.console import plain_ending
from unle.cli.output import saved_so_far
from unle.cli.run import finish
from unle.cli.settings import Dask, ExecutorOptions, RunSettings, Workers
from unle.cli.simulate import simulate_only
from unle.progress import progress, tell

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
    import numpy as np

    from unle.cli.inference import Request
    from unle.errors import StoreError

    try:
        x_o = None if record["x_o"] is None else np.array(record["x_o"], dtype=float)
        imported = record["simulations_sha256"]
        return Request(model, RunSettings.from_record(record), x_o, simulations_sha256=imported)
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"the settings of this run are damaged, or of another version of unle ({error}).") from None
