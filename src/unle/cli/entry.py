"""The `unle` program: its verbs, each with an example below its help text."""

import importlib
import importlib.util
from collections.abc import Callable
from typing import Annotated

import typer

from unle.cli import check, data, demo, run, sample, simulate, watch

BENCHMARK_VERBS = "unle_bench.cli"  # a module with VERBS, if it is installed

app = typer.Typer(
    name="unle",
    help="Simulation-based inference with energy-based likelihoods: your simulator in, posterior draws out.",
    epilog="Start with:  unle demo",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
    pretty_exceptions_enable=False,  # what is not one clear sentence is a bug, and then the plain traceback helps most
    context_settings={"help_option_names": ["-h", "--help"]},
)

# name -> (function, example)
VERBS: dict[str, tuple[Callable[..., None], str]] = {
    "demo": (demo.demo, demo.EXAMPLE),
    "run": (run.run, run.EXAMPLE),
    "resume": (run.resume, run.RESUME_EXAMPLE),
    "sample": (sample.sample, sample.EXAMPLE),
    "simulate": (simulate.simulate, simulate.EXAMPLE),
    "export": (data.export_simulations, data.EXPORT_EXAMPLE),
    "import": (data.import_simulations, data.IMPORT_EXAMPLE),
    "check": (check.check, check.EXAMPLE),
    "report": (check.report, check.REPORT_EXAMPLE),
    "watch": (watch.watch, watch.EXAMPLE),
}


def _benchmark_verbs() -> dict[str, tuple[Callable[..., None], str]]:
    """Return the verbs of the benchmark; none where its package is not installed."""
    if importlib.util.find_spec(BENCHMARK_VERBS.partition(".")[0]) is None:
        return {}
    return importlib.import_module(BENCHMARK_VERBS).VERBS


for _name, (_function, _example) in (VERBS | _benchmark_verbs()).items():
    app.command(_name, epilog=_example)(_function)


def _version(wanted: bool) -> bool:  # noqa: FBT001  (the signature of a typer callback)
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(version("unle"))
        except PackageNotFoundError:  # run from a source tree that was not installed
            typer.echo("unknown")
        raise typer.Exit
    return wanted


Version = Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")]


@app.callback()
def options(
    version: Version = False,  # noqa: FBT002
) -> None:
    """Options before the verb."""
