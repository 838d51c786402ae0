"""`unle sample`: draws for a new observation from a likelihood that was fitted before."""

import json
from pathlib import Path
from typing import Annotated

import typer

from unle.cli.console import Stages, plain_ending, refuse_missing
from unle.cli.output import say_complaints, show_summary, summarise
from unle.cli.settings import WHOLE_NUMBER
from unle.progress import progress

EXAMPLE = "Example:  unle sample runs/model --observation new.csv -n 10000"


def sample(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A run directory, made by `unle run`.")],
    observation: Annotated[
        str,
        typer.Option(
            help="File with x_o (.csv, .txt, .npy, .json; missing entries as nan), or the number of a task's "
            "observation, 1 to 10."
        ),
    ],
    n: Annotated[int, typer.Option("-n", "--draws", **WHOLE_NUMBER, help="Number of posterior draws.")] = 10_000,
    seed: Annotated[int, typer.Option(min=0, help="Fixes the draws.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(help="File to write.  [default: the first free DIR/draws_K.nc]", show_default=False),
    ] = None,
    condition: Annotated[
        list[str] | None,
        typer.Option(
            help="Hold a parameter at a value, as in beta=0.4; may be given several times.", metavar="NAME=VALUE"
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,  # noqa: FBT002
) -> None:
    """Draw from a fitted posterior at a new observation; nothing is simulated or trained.

    With --condition, some parameters are held at given values and the others drawn from their posterior given these.
    """
    with plain_ending():
        refuse_missing(observation)
        with progress("Loading"):
            from unle.cli import inference
            from unle.cli.model import built_in_tasks
            from unle.cli.observation import read_observation
            from unle.errors import StoreError
            from unle.store import RunDirectory

        run, held = RunDirectory.open(directory), dict(map(_held, condition or []))
        x_o = read_observation(observation, built_in_tasks().get(run.settings.get("model", "")), gaps=True)
        target = _free(directory) if out is None else out
        if target.exists():
            raise StoreError(f"{target} exists and is not overwritten; choose another --out.")
        if not target.parent.is_dir():
            raise StoreError(f"{target} cannot be written: there is no directory {target.parent}.")
        stages = Stages()
        with stages.stage("read", "Reading the fit"):
            posterior = inference.load_posterior(run)
        with stages.stage("sample", "Posterior draws"):
            draws = inference.sample(posterior, x_o, n, seed=seed, condition=held)
            draws.save(target)
            summary = summarise(draws)
        if as_json:
            result = {"file": str(target), "draws": len(draws), "seconds": stages.seconds, "summary": summary}
            result |= {"condition": held} if held else {}
            typer.echo(json.dumps(result, indent=2))
        else:
            show_summary(summary, len(draws))
            if held:
                typer.echo(f"Given {', '.join(f'{name} = {value:g}' for name, value in held.items())}.")
            typer.echo(f"Time: {stages.line()}")
            typer.echo(f"The draws are in {target}")
        say_complaints(summary)


def _held(text: str) -> tuple[str, float]:
    """Return name and value of `beta=0.4`; an equals sign may be part of a name."""
    name, _, value = text.rpartition("=")
    try:
        return name.strip(), float(value)
    except ValueError:
        from unle.errors import InputError

        raise InputError(f"expected --condition as NAME=VALUE, such as beta=0.4; got {text!r}.") from None


def _free(directory: Path) -> Path:
    k = 1
    while (directory / f"draws_{k}.nc").exists():
        k += 1
    return directory / f"draws_{k}.nc"
