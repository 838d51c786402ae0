"""`unle report`: one page that tells the story of a run."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from unle.cli.check import gather, require_fit
from unle.cli.console import Stages, plain_ending, say
from unle.progress import progress

EXAMPLE = "Example:  unle report runs/two_moons"


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
    with plain_ending():
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
    """Check a run that has just ended, and write its report; a failure is a sentence, no more.

    Returns:
        The findings, or None if they could not be made.
    """
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


def _findings(run: Any, evidence: Any, *, fresh: bool) -> Any:
    """Return the findings of the directory if they are newer than its draws and its fit, else make them."""
    from unle.diagnose import Findings, default_checks

    kept = run.path / "checks.json"
    sources = [path for path in (run.draws, *run.path.glob("rounds/*/likelihood.json")) if path.exists()]
    current = kept.exists() and all(kept.stat().st_mtime >= path.stat().st_mtime for path in sources)
    if current and not fresh:
        run.finished("checks")  # raises if a file was damaged
        return Findings.load(run.path / "checks")
    findings = default_checks(evidence)
    with run.making("checks", [kept, kept.with_suffix(".npz")]):
        findings.save(run.path / "checks")
    return findings
