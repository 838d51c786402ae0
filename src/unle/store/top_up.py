"""A run directory whose run goes on with other settings: the simulations stay, and its results are put aside.

What was fitted, drawn and checked with the smaller budget is moved to `earlier/BUDGET`.  The directory then looks like
that of an interrupted run, and a crash at any point leaves one that can be topped up again or resumed.
"""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from unle.store.run_directory import METRICS, RunDirectory
from unle.store.safe_files import plain, read_sealed, versions, write_atomically, write_sealed

EARLIER = "earlier"
STAGES = ("fit", "draws", "checks", METRICS)  # that are not finished any more
RESULTS = ("draws*.nc", "checks.json", "checks.npz", "report.html", "rounds/*/likelihood.*")


def top_up(
    run: RunDirectory, settings: Mapping[str, Any], *, keep: Callable[[Mapping[str, Any]], bool]
) -> RunDirectory:
    """Give a run new settings, under which its simulations stay valid, and put its results aside.

    Args:
        run: the directory; nobody else may work there.
        settings: the new ones.
        keep: whether a record of the metrics still counts.

    Returns:
        The run with the new settings.
    """
    with run.locked():
        aside = run.path / EARLIER / str(run.settings["budget"])
        records = run.read_metrics()
        for stage in STAGES:
            run.unseal(stage)
        metrics, old = run.path / "metrics.jsonl", aside / "metrics.jsonl"
        if metrics.exists() and not old.exists():
            _make(aside)
            shutil.copyfile(metrics, old)
        for pattern in RESULTS:
            for file in sorted(run.path.glob(pattern)):
                target = aside / file.relative_to(run.path)
                _make(target.parent)
                file.replace(target)
        if metrics.exists():
            lines = [json.dumps(record) + "\n" for record in records if keep(record)]
            write_atomically(metrics, "".join(lines).encode())
        content = read_sealed(run.path / "run.json")
        write_sealed(run.path / "run.json", content | {"settings": plain(settings), "versions": versions()})
    return RunDirectory.open(run.path)


def _make(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
