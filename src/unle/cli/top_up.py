"""A larger budget for a run that is there: `unle run MODEL --budget 2000` goes on from 1,000 simulations.

Amortised methods simulate what is missing and fit again.  Sequential methods keep their rounds and add further ones, of
the size of the last, unless `--rounds` says how to go on.  Everything else must be as it was.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unle.cli.console import say
from unle.cli.settings import SEQUENTIAL
from unle.methods.abstract_method import round_sizes
from unle.store import RunDirectory, plain
from unle.store.run_directory import EARLIER, top_up

FIRST_ROUNDS = "first_rounds"  # what --rounds was when a sequential run began
MAY_DIFFER = {"budget", "rounds", FIRST_ROUNDS}


def create_or_top_up(path: Path, settings: Mapping[str, Any]) -> RunDirectory:
    """Open the run directory of these settings: a new one, one that has begun, or one with a smaller budget."""
    wanted = plain(settings)
    run = RunDirectory.open(path) if (path / "run.json").exists() else None
    grown = None if run is None else _grown(run.settings, wanted)
    if run is None or grown is None:
        return RunDirectory.create(path, wanted)
    if grown == run.settings:
        return run
    before, now = run.settings["budget"], grown["budget"]
    sizes, last = grown.get("rounds"), _last_round(run.settings)
    run = top_up(run, grown, keep=lambda record: record.get("stage") == "round" and int(record["number"]) < last)
    more = f" in {len(sizes) - last - 1} further rounds, each with a fit of its own" if isinstance(sizes, list) else ""
    aside = path / EARLIER / str(before)
    kept = f"; the results of the {before:,} are kept in {aside}" if aside.exists() else ""
    say(f"{path} goes on from {before:,} to {now:,} simulations{more}{kept}.")
    return run


def _grown(was: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the settings with which a run goes on as it is now wanted; None if it cannot."""
    different = {key for key in {*was, *now} if was.get(key) != now.get(key)}
    before, wanted = was.get("budget"), now.get("budget")
    if not (different <= MAY_DIFFER and isinstance(before, int) and isinstance(wanted, int) and before <= wanted):
        return None
    if was.get("method") not in SEQUENTIAL:
        return dict(now) if different == {"budget"} and now.get("simulations_sha256") is None else None
    done, asked = round_sizes(was["budget"], was["rounds"]), was.get(FIRST_ROUNDS, was["rounds"])
    if now["rounds"] == asked:
        sizes = [*done, *_further(now["budget"] - was["budget"], done[-1])]
    else:
        sizes = round_sizes(now["budget"], now["rounds"])
    if sizes == done:
        return dict(was)
    return (
        {**was, "budget": now["budget"], "rounds": sizes, FIRST_ROUNDS: asked} if sizes[: len(done)] == done else None
    )


def _further(n: int, size: int) -> list[int]:
    """Split further simulations into rounds of about this size."""
    count = max(1, round(n / size)) if n else 0
    return [n // count + (i < n % count) for i in range(count)]


def _last_round(settings: Mapping[str, Any]) -> int:
    """Return the number of the last round, which is fitted again, as others follow it now."""
    sequential = settings.get("method") in SEQUENTIAL
    return len(round_sizes(settings["budget"], settings["rounds"])) - 1 if sequential else 0
