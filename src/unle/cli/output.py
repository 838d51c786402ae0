"""What a finished run, or a set of draws, looks like on the terminal."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from unle.cli.console import Stages, counted, say, show_table
from unle.cli.settings import SEQUENTIAL
from unle.progress import progress

NOTHING = "nothing was written."
BEGUN = "checks_begun"  # file, without suffix, of checks that were interrupted
HIGH_R_HAT = 1.05  # above, independent runs of the sampler disagree visibly


@dataclass(frozen=True)
class RunEnd:
    """What there is at the end of a run."""

    draws: Any
    summary: dict[str, dict[str, float]] | None  # of the draws
    stages: Stages
    score: float | None  # C2ST against exact draws
    findings: Any  # of the checks
    was_done: bool  # whether the directory held everything already


def show_draws(directory: Path, draws: Any, *, as_json: bool) -> dict[str, dict[str, float]] | None:
    """Print the table of a posterior, before it is checked, and return its numbers; `show_end` prints JSON instead."""
    if draws is None:
        if not as_json:
            typer.echo(f"The likelihood is fitted and saved in {directory}. Draw from it, for any observation, with")
            typer.echo(f"    unle sample {directory} --observation FILE")
        return None
    with progress("Summary"):
        summary = summarise(draws)
    if not as_json:
        show_summary(summary, len(draws))
    say_complaints(summary)
    return summary


def show_end(directory: Path, end: "RunEnd", *, as_json: bool) -> None:
    """Print what there is to say after a run besides its table and verdict, or everything as a JSON object."""
    from unle.store import RunDirectory

    if as_json:
        findings = end.findings
        result = {
            "directory": str(directory),
            "repeated": not end.was_done,
            "seconds": end.stages.seconds,
            "draws": None if end.draws is None else len(end.draws),
            "summary": end.summary,
            "c2st": end.score,
            "verdict": None if findings is None else findings.verdict,
            "reasons": [] if findings is None else list(findings.reasons),
            "files": sorted(str(path) for path in directory.rglob("*") if path.is_file()),
        }
        typer.echo(json.dumps(result, indent=2))
        return
    if end.score is not None:
        typer.echo(f"C2ST against exact draws: {end.score:.3f} (0.5 is indistinguishable, 1 is entirely different)")
    if end.stages.seconds:
        typer.echo(f"Time: {end.stages.line()}")
    if end.draws is not None:
        amortised = RunDirectory.open(directory).settings.get("method") not in SEQUENTIAL
        more = f"; another observation: unle sample {directory} --observation FILE" if amortised else "."
        typer.echo(f"Everything is in {directory}{more}")


def summarise(draws: Any) -> dict[str, dict[str, float]]:
    """Return mean, sd, 95 % interval, R-hat and effective sample size of every parameter.

    The interval holds the central 95 % of the draws.
    """
    import numpy as np

    values = np.asarray(draws, dtype=float)
    low, high = np.quantile(values, [0.025, 0.975], axis=0)
    diagnostics = draws.summary()
    return {
        name: {
            "mean": float(values[:, i].mean()),
            "sd": float(values[:, i].std(ddof=1)),
            "low": float(low[i]),
            "high": float(high[i]),
            "r_hat": float(diagnostics.loc[name, "r_hat"]),
            "ess": float(diagnostics.loc[name, "ess_bulk"]),
        }
        for i, name in enumerate(draws.names)
    }


def show_summary(summary: dict[str, dict[str, float]], draws: int) -> None:
    """Print the table of a posterior: what was learned about each parameter, and how far to trust the sampler."""
    rows = [
        [
            name,
            *(f"{row[key]:.4g}" for key in ("mean", "sd", "low", "high")),
            f"{row['r_hat']:.3f}",
            f"{row['ess']:.0f}",
        ]
        for name, row in summary.items()
    ]
    show_table(f"Posterior, {draws:,} draws", ["parameter", "mean", "sd", "2.5 %", "97.5 %", "R-hat", "ESS"], rows)


def say_complaints(summary: dict[str, dict[str, float]]) -> None:
    """Warn, in one line, of parameters on whose posterior the sampler's independent runs disagree."""
    high = {name: row["r_hat"] for name, row in summary.items() if row["r_hat"] > HIGH_R_HAT}
    if not high:
        return
    worst = max(high, key=lambda name: high[name])
    others = f", and of {counted(len(high) - 1, 'other parameter')} above {HIGH_R_HAT}" if len(high) > 1 else ""
    say(
        f"warning: R-hat of {worst} is {high[worst]:.2f}{others}: independent runs of the sampler disagree, perhaps on "
        "the weights of modes; try another sampler, such as unle.TemperedSmc(particles=20_000) in Python."
    )


def say_traceback(trace: str | None) -> None:
    """Show where the user's simulator failed first, if it did."""
    if trace:
        say(f"The first traceback:\n{trace.rstrip()}")


def checks_so_far(directory: Path, otherwise: str = NOTHING) -> str:
    """Return what a directory keeps of interrupted checks, as the second half of a sentence."""
    from unle.errors import StoreError
    from unle.store import read_json

    try:
        kept = counted(len(read_json(directory / f"{BEGUN}.json")["checks"]), "check")
    except (StoreError, KeyError, TypeError):  # there is nothing, or it is damaged
        return otherwise
    return f"finished and kept: {kept}; the same command makes the others."


def saved_so_far(directory: Path) -> str:
    """Return what a directory keeps of an interrupted run, as the second half of a sentence."""
    from unle.store import RunDirectory

    if not (directory / "run.json").exists():
        return "nothing was saved."
    run = RunDirectory.open(directory)
    if run.finished("fit"):
        drawn = ", its draws" * run.finished("draws") + ", and their checks" * (run.path / "checks.json").exists()
        drawn += ", and some checks" * (run.path / f"{BEGUN}.json").exists()
        kept = f"the fitted likelihood{drawn} {'are' if drawn else 'is'}"
    elif (directory / "simulations.sqlite").exists():
        with run.simulations(read_only=True) as store:
            kept = f"{store.count():,} simulations are"
    else:
        kept = "the settings are"
    return f"{kept} saved in {directory}; to go on: unle resume {directory}"
