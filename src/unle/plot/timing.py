"""Where the time of a run went."""

from collections.abc import Mapping, Sequence
from typing import Any

from unle.errors import InputError
from unle.plot.style import LEARNED, style


def run_time(seconds: Mapping[str, float] | Sequence[Mapping[str, Any]]):
    """Show the seconds of every stage as bars.

    Args:
        seconds: by stage, or the records of `RunDirectory.read_metrics`, whose "seconds" are added up.
    """
    from matplotlib.figure import Figure

    stages = dict(seconds) if isinstance(seconds, Mapping) else stage_seconds(seconds)
    if not stages:
        raise InputError("expected at least one stage with its seconds; got none.")
    with style():
        figure = Figure(figsize=(5.5, 0.35 * len(stages) + 0.7), layout="constrained")
        axis = figure.subplots()
        bars = axis.barh(list(stages)[::-1], list(stages.values())[::-1], color=LEARNED, alpha=0.8, height=0.6)
        axis.bar_label(bars, [f"{value:.1f} s" for value in list(stages.values())[::-1]], padding=3, fontsize=8)
        axis.set_xlabel("seconds")
        axis.margins(x=0.15)
        figure.draw_without_rendering()
    return figure


def stage_seconds(metrics: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the seconds of every stage, summed over the runs that a directory saw."""
    stages: dict[str, float] = {}
    for record in metrics:
        if record.get("stage") == "seconds":
            for name, value in record.items():
                if name != "stage":
                    stages[name] = stages.get(name, 0.0) + float(value)
    return stages
