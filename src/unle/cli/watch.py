"""`unle watch`: a run in progress, seen from another terminal or another machine."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from unle.cli.console import plain_ending, say

EXAMPLE = "Example:  unle watch runs/two_moons"
FAILURES = 5  # looks in a row that may fail, as when the table is busy
WIDEST = 76  # columns of the view


def watch(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The directory of a run that is going on.")],
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Look once and end.")] = False,  # noqa: FBT002
) -> None:
    """Show a run in progress: stage, round, simulations per second, failures, training, time left.

    Only files of the directory are read, so another machine that sees the directory can watch. Nothing is written. The
    command ends when the run has ended, and says how: its exit status is 0 if the run finished, and 1 if it was killed,
    interrupted or failed. On a terminal the view is refreshed in place, elsewhere lines are printed when something has
    changed.
    """
    with plain_ending(lambda: "the run goes on."):
        import sys

        from unle.cli.run_status import describe, run_status
        from unle.store import RunDirectory

        run = RunDirectory.open(directory)
        first = run_status(run)
        if once or first.ended:
            last = first
            typer.echo(describe(first, first))
        elif sys.stdout.isatty():
            last = _live(run, first, every)
        else:
            last = _lines(run, first, every)
        if last.stage == "stopped":
            say(f"the run stopped before its end; to go on: unle resume {directory}")
            raise typer.Exit(0 if once else 1)


def _follow(run: Any, first: Any, every: float, show: Callable[[Any, Any], None]) -> Any:
    """Look again and again until the run has ended; return the last look."""
    from unle.cli.run_status import run_status
    from unle.errors import StoreError

    failures, now = 0, first
    while not now.ended:
        time.sleep(every)
        try:
            now, failures = run_status(run), 0
        except StoreError:
            failures += 1
            if failures == FAILURES:
                raise
            continue
        first = now if now.task != first.task else first
        show(now, first)
    return now


def _lines(run: Any, first: Any, every: float) -> Any:
    from unle.cli.run_status import describe

    told = [first]
    typer.echo(describe(first, first))

    def show(now: Any, since: Any) -> None:
        last = told[-1]
        if (now.stage, now.round, now.done, now.loss) != (last.stage, last.round, last.done, last.loss):
            typer.echo(describe(now, since))
            told.append(now)

    return _follow(run, first, every, show)


def _live(run: Any, first: Any, every: float) -> Any:
    from rich.live import Live

    with Live(panel(run, first, first), auto_refresh=False) as live:
        live.refresh()
        return _follow(run, first, every, lambda now, since: live.update(panel(run, now, since), refresh=True))


def panel(run: Any, now: Any, first: Any) -> Any:
    """Return the view for a terminal: one line for each part of the description, and a bar."""
    from rich.console import Group
    from rich.panel import Panel
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    from unle.cli.run_status import describe

    lines: list[Any] = [Text(part) for part in describe(now, first).split("; ")]
    if now.steps and not now.ended:
        bar = Table.grid(expand=True)  # a bar does not end its line by itself
        bar.add_row(ProgressBar(total=now.steps, completed=min(now.step, now.steps), complete_style="cyan"))
        lines.insert(1, bar)
    return Panel(Group(*lines), title=Text(str(run.path)), title_align="left", width=WIDEST)
