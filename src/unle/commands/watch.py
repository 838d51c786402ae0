"""`unle watch`: a run in progress, seen from another terminal or another machine."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from unle.commands.console import plain_ending

EXAMPLE = "Example:  unle watch runs/two_moons"


@dataclass(frozen=True)
class Glance:
    """What can be seen of a run at one moment.

    Attributes:
        at: seconds on a clock.
        stage: simulating, fitting (a round), training, sampling or finished.
        round: the latest, from 0.
        rounds: how many there will be.
        done: simulations of that round, of `wanted`.
        wanted: as the settings say; None if they do not.
        invalid: of the done ones.
        loss: what training, or the last round, reported last, in words; empty if nothing yet.
        silent: seconds since a file of the run changed.
    """

    at: float
    stage: str
    round: int
    rounds: int
    done: int
    wanted: int | None
    invalid: int
    loss: str
    silent: float


def watch(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The directory of a run that is going on.")],
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Look once and end.")] = False,  # noqa: FBT002
) -> None:
    """Show a run in progress: stage, round, simulations per second, failures, training, time left.

    Only files of the directory are read, so another machine that sees the directory can watch. Nothing is written. The
    command ends when the run has ended; on a terminal the view is refreshed in place, elsewhere lines are printed when
    something has changed.
    """
    with plain_ending(lambda: "the run goes on."):
        import sys

        from unle.store import RunDirectory

        run = RunDirectory.open(directory)
        first = last = look(run)
        if once or last.stage == "finished":
            typer.echo(describe(last, first))
            return
        if sys.stdout.isatty():
            _live(run, first, every)
        else:
            _lines(run, first, every)


def look(run: Any) -> Glance:
    """Return what can be seen now."""
    from unle.store.peek import peek_simulations

    counts = peek_simulations(run.path / "simulations.sqlite")
    latest = counts[-1] if counts else None
    split, budget = run.settings.get("rounds") or 1, run.settings.get("budget")
    rounds = len(split) if isinstance(split, list) else int(split)
    current = 0 if latest is None else latest.round
    if isinstance(split, list):
        wanted = split[current] if current < rounds else None
    else:
        wanted = None if budget is None else int(budget) // rounds + (current < int(budget) % rounds)
    done = latest.done if latest else 0
    metrics = run.read_metrics()
    training = [record for record in metrics if record.get("stage") == "training"]
    fitted = (run.path / "rounds" / f"{rounds - 1:02d}" / "likelihood.json").exists()
    has_x_o = run.settings.get("x_o") is not None
    if any(record.get("stage") == "seconds" for record in metrics) and (run.draws.exists() or not has_x_o):
        stage = "finished"
    elif fitted:
        stage = "sampling"
    elif wanted is None or done < wanted:
        stage = "simulating"
    else:
        stage = "training" if current == rounds - 1 else "fitting"
    loss, told = "", [record for record in metrics if record.get("stage") == "round"]
    if training and stage in ("training", "sampling", "finished"):
        last = training[-1]
        loss = f"chunk {int(last['chunk']) + 1}, held-out gain {float(last['gain']):+.2f} nats"
    elif told:
        loss = f"round {int(told[-1]['number']) + 1} was {float(told[-1]['distance']):.2g} sd from x_o"
    newest = max((path.stat().st_mtime for path in run.path.rglob("*") if path.is_file()), default=time.time())
    silent = max(time.time() - newest, 0.0)
    invalid = latest.invalid if latest else 0
    return Glance(time.monotonic(), stage, current, rounds, done, wanted, invalid, loss, silent)


def describe(now: Glance, first: Glance) -> str:
    """Return one line; rates are over the time since the first look at this round."""
    parts = [f"{now.stage}, round {now.round + 1} of {now.rounds}" if now.rounds > 1 else now.stage]
    total = f" of {now.wanted:,}" if now.wanted else ""
    parts.append(f"{now.done:,}{total} simulations ({now.invalid:,} failed)")
    passed, made = now.at - first.at, now.done - first.done
    if now.stage == "simulating" and passed > 0 and made > 0 and now.round == first.round:
        rate = made / passed
        parts.append(f"{rate:.3g} per second")
        if now.wanted:
            parts.append(f"{_span((now.wanted - now.done) / rate)} left")
    if now.loss:
        parts.append(now.loss)
    if now.silent > 60 and now.stage != "finished":
        parts.append(f"no sign of life for {_span(now.silent)}")
    return "; ".join(parts)


def _lines(run: Any, first: Glance, every: float) -> None:
    last = None
    while True:
        now = look(run)
        first = now if now.round != first.round else first
        line = describe(now, first)
        if last is None or _changed(now, last):
            typer.echo(line)
            last = now
        if now.stage == "finished":
            return
        time.sleep(every)


def _changed(now: Glance, last: Glance) -> bool:
    return (now.stage, now.round, now.done, now.loss) != (last.stage, last.round, last.done, last.loss)


def _live(run: Any, first: Glance, every: float) -> None:
    from rich.live import Live

    with Live(auto_refresh=False) as live:
        while True:
            now = look(run)
            first = now if now.round != first.round else first
            live.update(_panel(run, now, first), refresh=True)
            if now.stage == "finished":
                return
            time.sleep(every)


def _panel(run: Any, now: Glance, first: Glance) -> Any:
    from rich.console import Group
    from rich.panel import Panel
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    lines: list[Any] = [Text(part.strip()) for part in describe(now, first).split(";")]
    if now.wanted:
        lines.insert(1, ProgressBar(total=now.wanted, completed=min(now.done, now.wanted), width=60))
    return Panel(Group(*lines), title=Text(str(run.path)), title_align="left", width=72)


def _span(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
