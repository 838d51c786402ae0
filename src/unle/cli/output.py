"""What a finished run, or a set of draws, looks like on the terminal."""

import json
from pathlib import Path
from typing import Any

import typer

from unle.cli.console import Stages, counted, say, show_table
from unle.cli.settings import SEQUENTIAL
from unle.progress import progress

HIGH_R_HAT = 1.05  # above, independent runs of the sampler disagree visibly


def show_run(
    directory: Path, draws: Any, stages: Stages, score: float | None, findings: Any, *, as_json: bool, done: bool
) -> None:
    """Print the table, or the JSON object, of a finished run.

    `score` is C2ST against exact draws; `done` says that the directory held everything already.
    """
    from unle.store import RunDirectory

    with progress("Summary"):
        summary = None if draws is None else summarise(draws)
    if as_json:
        result = {
            "directory": str(directory),
            "repeated": not done,
            "seconds": stages.seconds,
            "draws": None if draws is None else len(draws),
            "summary": summary,
            "c2st": score,
            "verdict": None if findings is None else findings.verdict,
            "reasons": [] if findings is None else list(findings.reasons),
            "files": sorted(str(path) for path in directory.rglob("*") if path.is_file()),
        }
        typer.echo(json.dumps(result, indent=2))
    elif summary is None or draws is None:
        typer.echo(f"The likelihood is fitted and saved in {directory}. Draw from it, for any observation, with")
        typer.echo(f"    unle sample {directory} --observation FILE")
    else:
        show_summary(summary, len(draws))
    say_complaints(summary or {})
    if as_json:
        return
    if score is not None:
        typer.echo(f"C2ST against exact draws: {score:.3f} (0.5 is indistinguishable, 1 is entirely different)")
    if stages.seconds:
        typer.echo(f"Time: {stages.line()}")
    if draws is not None:
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


def saved_so_far(directory: Path) -> str:
    """Return what a directory keeps of an interrupted run, as the second half of a sentence."""
    from unle.store import RunDirectory

    if not (directory / "run.json").exists():
        return "nothing was saved."
    run = RunDirectory.open(directory)
    if run.finished("fit"):
        drawn = ", its draws" * run.finished("draws") + ", and their checks" * (run.path / "checks.json").exists()
        kept = f"the fitted likelihood{drawn} {'are' if drawn else 'is'}"
    elif (directory / "simulations.sqlite").exists():
        with run.simulations(read_only=True) as store:
            kept = f"{store.count():,} simulations are"
    else:
        kept = "the settings are"
    return f"{kept} saved in {directory}; to go on: unle resume {directory}"
