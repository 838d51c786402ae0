"""`unle report`: one page that tells the story of a run."""

from pathlib import Path
from typing import Annotated, Any

import typer

from unle.commands.console import plain_ending, say

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
        from unle.commands.evidence import gather, model_of, require_fit
        from unle.report import write_report

        run = require_fit(directory)
        evidence = gather(run, model=model_of(run, model))
        findings = _findings(run, evidence, fresh=fresh)
        path = write_report(run, evidence.posterior, evidence.draws, findings, out)
        typer.echo(f"{path}  ({path.stat().st_size / 1e6:.1f} MB, verdict: {findings.verdict})")


def report_after(run: Any, model: Any) -> None:
    """Make the quick checks of a run that has just ended, and its report; a failure is a sentence, no more."""
    from unle.commands.evidence import gather
    from unle.report import write_report

    try:
        evidence = gather(run, model=model)
        findings = _findings(run, evidence, fresh=False, quick=True)
        path = write_report(run, evidence.posterior, evidence.draws, findings)
        say(f"report: {path} (verdict: {findings.verdict})")
        if not findings.complete:
            say(f"these were the quick checks; calibration and the others: unle check {run.path}")
    except Exception as error:  # noqa: BLE001
        say(f"warning: the report could not be made ({type(error).__name__}: {' '.join(str(error).split())[:200]}).")


def _findings(run: Any, evidence: Any, *, fresh: bool, quick: bool = False) -> Any:
    """Return the findings of the directory if they are newer than its draws and its fit, else make them.

    Findings of the quick checks alone are enough only where no more is asked for.
    """
    from unle.diagnose import Findings, run_checks

    kept = run.path / "checks.json"
    sources = [path for path in (run.draws, *run.path.glob("rounds/*/likelihood.json")) if path.exists()]
    current = kept.exists() and all(kept.stat().st_mtime >= path.stat().st_mtime for path in sources)
    if current and not fresh:
        run.finished("checks")  # raises if a file was damaged
        kept_findings = Findings.load(run.path / "checks")
        if quick or kept_findings.complete:
            return kept_findings
    findings = run_checks(evidence, quick=quick)
    with run.making("checks", [kept, kept.with_suffix(".npz")]):
        findings.save(run.path / "checks")
    return findings
