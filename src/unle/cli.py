"""The command line: `unle VERB ...`.  The verbs are in `unle.commands`, one file each."""

from typing import Annotated

import typer

from unle.commands import (
    adversary,
    bench,
    check,
    data,
    demo,
    paper,
    report,
    resume,
    run,
    sample,
    simulate,
    tasks,
    watch,
)

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
app.command(epilog=demo.EXAMPLE)(demo.demo)
app.command(epilog=run.EXAMPLE)(run.run)
app.command(epilog=resume.EXAMPLE)(resume.resume)
app.command(epilog=sample.EXAMPLE)(sample.sample)
app.command(epilog=simulate.EXAMPLE)(simulate.simulate)
app.command("export", epilog=data.EXPORT_EXAMPLE)(data.export_simulations)
app.command("import", epilog=data.IMPORT_EXAMPLE)(data.import_simulations)
app.command(epilog=tasks.EXAMPLE)(tasks.tasks)
app.command(epilog=bench.EXAMPLE)(bench.bench)
app.command(epilog=adversary.EXAMPLE)(adversary.adversary)
app.command(epilog=paper.EXAMPLE)(paper.paper)
app.command(epilog=check.EXAMPLE)(check.check)
app.command(epilog=report.EXAMPLE)(report.report)
app.command(epilog=watch.EXAMPLE)(watch.watch)


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


def main() -> None:
    """Run the command line; the entry point of the `unle` script."""
    app(prog_name="unle")


if __name__ == "__main__":
    main()
