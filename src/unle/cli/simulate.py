"""`unle simulate`: simulations only, or a dry run that tells what they would cost."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from unle.cli.console import plain_ending, say
from unle.cli.output import saved_so_far, say_traceback
from unle.cli.settings import WHOLE_NUMBER, Dask, ExecutorOptions, Timeout, Workers
from unle.progress import progress, tell

EXAMPLE = "Example:  unle simulate model.py --budget 10000 --dry-run"


def simulate(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A built-in task, or a Python file with `prior` and `simulator`.")
    ],
    budget: Annotated[int, typer.Option(**WHOLE_NUMBER, help="Number of simulations.")] = 1000,
    out: Annotated[
        Path | None, typer.Option(help="Run directory.  [default: runs/MODEL-simulations]", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Fixes the result.")] = 0,
    workers: Workers = None,
    dask: Dask = None,
    timeout: Timeout = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only try, and tell what to expect.")] = False,  # noqa: FBT002
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,  # noqa: FBT002
) -> None:
    """Simulate, and keep the simulations for later: `unle run MODEL --simulations DIR`, or `unle export DIR FILE`.

    The same command with a larger --budget adds to them.
    """
    directory = Path("runs") / f"{Path(model).stem}-simulations" if out is None else out
    with plain_ending(lambda: saved_so_far(directory)):
        tell(f"{model}: simulations go to {directory}")
        with progress("Loading"):
            from unle.cli.model import load_model

            loaded = load_model(model)
        if dry_run:
            _dry_run(loaded, budget, workers, timeout, seed, as_json=as_json)
            return
        settings = {
            "method": "simulate",
            "model": loaded.name,
            "model_sha256": loaded.checksum,
            "prior": loaded.prior.spec(),
            "budget": budget,
            "seed": seed,
            "timeout": timeout,
        }
        simulate_only(loaded, settings, directory, ExecutorOptions(workers, dask), as_json=as_json)


def simulate_only(
    model: Any, settings: dict[str, Any], directory: Path, executor: ExecutorOptions, *, as_json: bool
) -> None:
    """Make the simulations of a directory that it lacks, and say what there is."""
    from unle.cli.inference import simulate_prior
    from unle.cli.model import remember
    from unle.cli.top_up import create_or_top_up
    from unle.simulators import summarise

    run = create_or_top_up(directory, {**settings, "prior": model.prior.spec()})
    if model.path is not None:
        remember(directory, model.path)
    with run.working(), run.simulating() as store:
        simulate_prior(store, model, settings, executor)
        tally, summary, names = store.tally(0), summarise(store, 0), list(store.fact("x_names") or ())
        width = store.width(0) or 0
        say_traceback(store.fact("traceback of round 0"))
    if as_json:
        result = {
            "directory": str(directory),
            "simulations": tally.count,
            "valid": tally.valid,
            "dim_x": width,
            "x_names": names,
            "summary": summary,
        }
        typer.echo(json.dumps(result, indent=2))
        return
    typer.echo(summary)
    if names:
        typer.echo(f"x: {', '.join(names)}")
    named = model.path or model.name
    typer.echo(f"They are in {directory}. To infer from them: unle run {named} --simulations {directory}")


def _dry_run(model: Any, budget: int, workers: int | None, timeout: float | None, seed: int, *, as_json: bool) -> None:
    from dataclasses import asdict

    from unle.simulators import dry_run

    look = dry_run(model.simulator, model.prior, budget=budget, workers=workers, timeout=timeout, seed=seed)
    if as_json:
        typer.echo(json.dumps({**asdict(look), "total": look.total}, indent=2))
    else:
        typer.echo(str(look))
    if look.first_traceback and not as_json:
        say(f"the first traceback:\n{look.first_traceback}")
    if not look.dim_x:
        raise typer.Exit(1)
