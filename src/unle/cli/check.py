"""`unle check`: every diagnostic that applies to a run, with a verdict each; `unle report`: one page on the run."""

import json
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from unle.cli.console import Stages, plain_ending, say, show_table
from unle.cli.output import BEGUN, NOTHING, checks_so_far
from unle.cli.settings import SEQUENTIAL
from unle.progress import progress

EXAMPLE = "Example:  unle check runs/two_moons"
REPORT_EXAMPLE = "Example:  unle report runs/two_moons"


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
    run's own. If it is interrupted, the checks that have ended are kept, and the same command makes the others.
    """
    with plain_ending(lambda: NOTHING if only else checks_so_far(directory)):
        with progress("Loading"):
            from unle.cli.model import model_of_run
            from unle.diagnose import run_checks

            run = require_fit(directory)
            evidence = gather(run, model=model_of_run(run, model), simulations=simulations, seed=seed)
        findings = run_checks(evidence, only) if only else _make(run, partial(run_checks, evidence))
        if as_json:
            typer.echo(json.dumps({"directory": str(directory), **findings.plain()}, indent=2))
        else:
            show_findings(findings, str(directory), whole=not only)


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
    """Read what the checks of a finished run look at; without a model nothing new is simulated."""
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


def show_findings(findings: Any, directory: str, *, whole: bool = True) -> None:
    """Print the findings as a table, with the reasons for doubt below it, and the verdict if all checks were made."""
    from unle.diagnose import say_numbers

    rows = [[one.title, one.verdict, say_numbers(one.numbers)] for one in findings.checks]
    show_table("Checks", ["check", "verdict", "numbers"], rows, numbers_from=9)
    for line in findings.reasons:
        typer.echo(line.replace("DIR", directory))
    for one in findings.skipped:
        if not one.missing:
            say(f"does not apply: {one.title}: {one.reason}")
    if whole:
        typer.echo(f"verdict: {findings.verdict} ({findings.standing}; {findings.seconds:.0f} s)")
    else:
        typer.echo(f"these checks alone: {findings.verdict}; the verdict on the run needs all: unle check {directory}")


def report(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A run directory, made by `unle run`.")],
    out: Annotated[
        Path | None, typer.Option(help="File to write.  [default: DIR/report.html]", show_default=False)
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="The Python file of the run, for its simulator; built-in tasks need none.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Make the checks again, even if they are there.")] = False,  # noqa: FBT002
) -> None:
    """Write one HTML page: the question, the answer, can I believe it, how it was made.

    The page needs no network and no other file. It takes the findings of `unle check`, and makes the checks itself if
    there are none, or if the run has changed since.
    """
    with plain_ending(lambda: checks_so_far(directory, "the report was not written.")):
        with progress("Loading"):
            from unle.cli.model import model_of_run
            from unle.report import write_report

            run = require_fit(directory)
            evidence = gather(run, model=model_of_run(run, model))
        findings = _findings(run, evidence, fresh=fresh)
        with progress("Writing the report"):
            path = write_report(run, evidence.posterior, evidence.draws, findings, out)
        typer.echo(f"{path}  ({path.stat().st_size / 1e6:.1f} MB)")
        show_verdict(findings, str(directory), typer.echo)


def report_after(run: Any, model: Any, stages: Stages) -> Any:
    """Check a run that has just ended, and write its report; a failure is a sentence, and None is returned."""
    with progress("Loading the checks"):
        from unle.report import write_report

    findings = None
    try:
        with stages.stage("check"):
            evidence = gather(run, model=model)
            findings = _findings(run, evidence, fresh=False)
        with stages.stage("report", "Writing the report"):
            path = write_report(run, evidence.posterior, evidence.draws, findings)
        say(f"report: {path}")
    except Exception as error:  # noqa: BLE001
        say(f"warning: the report could not be made ({type(error).__name__}: {' '.join(str(error).split())[:200]}).")
    return findings


def show_verdict(findings: Any, directory: str, write: Callable[[str], None] = say) -> None:
    """Print the verdict, what stands behind it, and the reasons if it is not good, one line each."""
    write(f"verdict: {findings.verdict} ({findings.standing}; {findings.seconds:.0f} s)")
    for line in findings.reasons:
        write(f"  {line.replace('DIR', directory)}")


def findings_kept(run: Any) -> Any:
    """Return the findings that a run keeps; None if it keeps none."""
    from unle.diagnose import Findings

    return Findings.load(run.path / "checks") if (run.path / "checks.json").exists() else None


def lacks_report(run: Any) -> bool:
    """Whether a run that has its draws has no report yet, or an older one: it was stopped while it was checked."""
    return not all(_is_current(run, run.path / name) for name in ("checks.json", "report.html"))


def _is_current(run: Any, file: Path) -> bool:
    sources = [path for path in (run.draws, *run.path.glob("rounds/*/likelihood.json")) if path.exists()]
    return file.exists() and all(file.stat().st_mtime >= path.stat().st_mtime for path in sources)


def _findings(run: Any, evidence: Any, *, fresh: bool) -> Any:
    """Return the findings of the directory if they are newer than its draws and its fit, else make them."""
    from unle.diagnose import Findings, default_checks

    kept = run.path / "checks.json"
    if _is_current(run, kept) and not fresh:
        run.finished("checks")  # raises if a file was damaged
        return Findings.load(run.path / "checks")
    return _make(run, partial(default_checks, evidence), fresh=fresh)


def _make(run: Any, checks: Callable[..., Any], *, fresh: bool = False) -> Any:
    """Make checks, each of which is kept as it ends, and store the findings; `fresh` takes none of the last time."""
    begun, names = run.path / BEGUN, [f"{BEGUN}.json", f"{BEGUN}.npz"]
    if fresh or not _is_current(run, run.path / names[0]):
        _remove(run.path / name for name in names)
    findings = checks(keep_in=begun)
    with run.making("checks", [run.path / "checks.json", run.path / "checks.npz"]):
        findings.save(run.path / "checks")
    _remove(run.path / name for name in names)
    return findings


def _remove(files: Iterable[Path]) -> None:
    for file in files:
        file.unlink(missing_ok=True)
