"""`unle demo`: one small inference from start to finish, scored against the exact posterior."""

from pathlib import Path
from typing import Annotated

import typer

from unle.cli.console import Stages, plain_ending, say
from unle.cli.output import show_summary, summarise
from unle.cli.settings import RunSettings
from unle.progress import progress

EXAMPLE = "Example:  unle demo --out runs/demo"
BUDGET = 1000
DRAWS = 10_000  # the benchmark's convention for C2ST

PYTHON = """\
The same in Python:

    import unle; task = unle.task("two_moons")    # or your own prior and simulator
    simulations = unle.simulate(task.simulator, task.prior, {budget}, seed={seed})
    posterior = unle.AUNLE(task.prior).fit(simulations, seed={fit})
    draws = posterior.sample(task.observation(1), {draws}, seed={sample})
"""


def demo(
    out: Annotated[Path, typer.Option(help="Run directory; a number is added if it exists.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(min=0, help="Fixes the result.")] = 0,
) -> None:
    """Infer the parameters of Two Moons from 1,000 simulations and compare with the exact posterior.

    Two Moons has two parameters and a posterior of two thin crescents, which is known exactly. The demo simulates,
    fits, draws, scores the draws (C2ST: the accuracy of a classifier that tells them from exact ones) and makes a
    figure.
    """
    directory = _fresh(out)
    with plain_ending(lambda: f"what was finished is in {directory}."):
        say(f"Two Moons, {BUDGET:,} simulations, {DRAWS:,} draws: a few minutes on two cores, mostly training.")
        with progress("Loading"):
            from unle.cli import inference
            from unle.cli.model import load_model
            from unle.cli.observation import as_observation
            from unle.diagnose import density_grid
            from unle.plot import compare_draws

            model = load_model("two_moons")
        assert model.task is not None
        x_o = as_observation(model.task.observation(1), "observation 1")
        request = inference.Request(model, RunSettings(budget=BUDGET, draws=DRAWS, seed=seed), x_o)
        run = inference.open_run(directory, request)
        stages = Stages()
        posterior, draws = inference.infer(request, run, stages)
        assert draws is not None
        score = inference.check_exact(request, draws, stages)
        with stages.stage("figure", "Drawing the figure"):
            reference = model.task.reference(x_o.rows[0], DRAWS, seed=seed)
            title = f"Two Moons from {BUDGET:,} simulations: C2ST {score:.3f}"
            (first, second), density = density_grid(posterior, draws)
            grid = first, second, density.T
            figure = compare_draws(draws, reference, draws.names, density=grid, title=title)
            figure.savefig(directory / "two_moons.png")

        show_summary(summarise(draws), len(draws))
        typer.echo(f"C2ST against {DRAWS:,} exact draws: {score:.3f} (0.5 is indistinguishable, 1 entirely different)")
        typer.echo(f"Time: {stages.line()}\n")
        for path, what in (
            ("two_moons.png", "the figure: learned draws, exact draws, learned density"),
            ("draws.nc", "the draws, for ArviZ and xarray"),
            ("rounds/00/likelihood.json", "the fitted likelihood (arrays in likelihood.npz)"),
            ("simulations.sqlite", "every simulation"),
            ("run.json", "settings, seed and versions"),
            ("metrics.jsonl", "how training went"),
        ):
            typer.echo(f"  {directory / path}  {what}")
        typer.echo("")
        numbers = {"budget": BUDGET, "draws": DRAWS}
        typer.echo(PYTHON.format(**numbers, seed=seed, fit=seed + 1, sample=seed + 2))
        typer.echo(f"Another observation, without training again: unle sample {directory} --observation 2")


def _fresh(path: Path) -> Path:
    """Return the path itself, or the first of path-2, path-3, ... that does not exist."""
    candidate, k = path, 1
    while candidate.exists():
        k += 1
        candidate = path.with_name(f"{path.name}-{k}")
    return candidate
