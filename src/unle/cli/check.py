"""`unle check`: every diagnostic that applies to a run, with a verdict each."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from unle.cli.console import plain_ending, say, show_table
from unle.cli.settings import SEQUENTIAL
from unle.progress import progress

EXAMPLE = "Example:  unle check runs/two_moons"


def check(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A run directory, made by `unle run`.")],
    simulations: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Fresh simulations for the calibration checks; 0 takes those of the fit.  [default: 300 if quick]",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="The Python file of the run, for its simulator; built-in tasks need none.")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="Make this check only; may be repeated.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of the checks.  [default: that of the run]")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,  # noqa: FBT002
) -> None:
    """Check a run: is the posterior calibrated, the sampler healthy, the observation like the simulations?

    Every check answers one doubt with good, doubtful or bad, the numbers behind it, and a sentence of advice. The
    findings are kept in DIR/checks.json, where `unle report` finds them. Simulations made here are never added to the
    run's own.
    """
    with plain_ending():
        with progress("Loading"):
            from unle.cli.model import model_of_run
            from unle.diagnose import run_checks

            run = require_fit(directory)
            evidence = gather(run, model=model_of_run(run, model), simulations=simulations, seed=seed)
        findings = run_checks(evidence, only or None)
        if not only:
            with run.making("checks", [run.path / "checks.json", run.path / "checks.npz"]):
                findings.save(run.path / "checks")
        if as_json:
            typer.echo(json.dumps({"directory": str(directory), **findings.plain()}, indent=2))
        else:
            show_findings(findings, str(directory))


def require_fit(path: Path) -> Any:
    """Open a run that has been fitted."""
    from unle.errors import StoreError
    from unle.store import RunDirectory

    run = RunDirectory.open(path)
    if not any((run.path / "rounds").glob("[0-9]*/likelihood.json")):
        raise StoreError(
            f"{path} holds no fitted likelihood yet; finish the run first, or watch it: unle watch {path}."
        )
    return run


def gather(run: Any, *, model: Any = None, simulations: int | None = None, seed: int | None = None) -> Any:
    """Read what the checks of a finished run look at.

    Args:
        run: the directory.
        model: with the simulator; None if it is not at hand.
        simulations: fresh simulations to make; see `FittedRun`.
        seed: of the checks; that of the run by default.
    """
    from unle.cli.inference import load_posterior
    from unle.diagnose import FittedRun
    from unle.posterior import Draws

    with run.simulations(read_only=True) as store:
        rows, tally = store.sample(), store.tally()
    return FittedRun(
        posterior=load_posterior(run),
        draws=Draws.load(run.draws) if run.draws.exists() else None,
        theta=rows.theta[rows.valid],
        x=rows.x[rows.valid],
        metrics=run.read_metrics(),
        simulator=None if model is None else model.simulator,
        seconds=tally.seconds / max(tally.count, 1),
        simulations=simulations,
        seed=int(run.settings.get("seed", 0)) if seed is None else seed,
        amortised=run.settings.get("method") not in SEQUENTIAL,
    )


def show_findings(findings: Any, directory: str) -> None:
    """Print the findings as a table, with the reasons for doubt below it."""
    from unle.diagnose import say_numbers

    rows = [[one.title, one.verdict, say_numbers(one.numbers)] for one in findings.checks]
    show_table("Checks", ["check", "verdict", "numbers"], rows, numbers_from=9)
    for line in findings.reasons:
        typer.echo(line.replace("DIR", directory))
    for one in findings.skipped:
        if not one.missing:
            say(f"does not apply: {one.title}: {one.reason}")
    typer.echo(f"verdict: {findings.verdict} ({findings.standing}; {findings.seconds:.0f} s)")
