"""How a run went: the curves of its training, its rounds, and where the time was spent."""

from collections.abc import Mapping, Sequence
from typing import Any

from unle.diagnose import Rounds
from unle.diagnose.fit_records import last_training
from unle.errors import InputError
from unle.plot.style import EXACT, LEARNED, new_figure

TRAINING_PANELS = (
    ("gain", "held-out gain over the base (nats)"),
    ("gap", "energy of data minus particles (nats)"),
    ("ess", "effective share of particles"),
)
ROUND_PANELS = (
    ("valid", "share of valid simulations"),
    ("distance", "distance of x from x_o (sd)"),
    ("width", "width of the proposal"),
)


def training_curves(metrics: Sequence[Mapping[str, Any]]):
    """Show the training records of a run.

    Args:
        metrics: records of `RunDirectory.read_metrics`; those with `stage` "training" are shown.

    Returns:
        The figure: one panel per quantity, one curve per energy (see `unle.methods.energy_selection`).

    Example:
        >>> records = [
        ...     {"stage": "training", "sees_theta": True, "chunk": i, "gain": 0.1 * i, "gap": 0.0, "ess": 1.0}
        ...     for i in range(3)
        ... ]
        >>> len(training_curves(records).axes)
        3
    """
    records = [record for record in metrics if record.get("stage") == "training"]
    if not records:
        raise InputError(
            "expected records with stage='training'; got none; try RunDirectory.open(path).read_metrics()."
        )
    curves = [
        ((False, False), "theta-free energy", EXACT, "--"),
        ((True, True), "trained further, with theta", EXACT, "-"),
        ((True, False), "energy of theta and x", LEARNED, "-"),
    ]
    with new_figure(9.3, 3.0) as figure:
        axes = figure.subplots(1, len(TRAINING_PANELS))
        for axis, (quantity, title) in zip(axes, TRAINING_PANELS, strict=True):
            for kind, label, colour, dashes in curves:
                alike = [r for r in records if (bool(r["sees_theta"]), bool(r.get("continued", False))) == kind]
                chosen = last_training(alike)
                if chosen and quantity in chosen[0]:  # chains have no weights, so that nothing is said of these
                    chunks = [record["chunk"] + 1 for record in chosen]
                    heights = [float(record[quantity]) for record in chosen]
                    axis.plot(chunks, heights, dashes, marker=".", ms=4, color=colour, label=label)
            axis.set(title=title, xlabel="chunk of training")
            axis.xaxis.get_major_locator().set_params(integer=True)
            if quantity != "ess":
                axis.axhline(0.0, color="0.6", lw=0.6, zorder=0)
            else:
                axis.set_ylim(0.0, 1.05)
        axes[0].legend()
    return figure


def rounds(record: Rounds):
    """Show valid rate, distance to x_o and width of the proposal, round by round.

    Args:
        record: of `unle.diagnose.rounds`.
    """
    with new_figure(8.4, 2.6) as figure:
        for axis, (name, title) in zip(figure.subplots(1, 3), ROUND_PANELS, strict=True):
            axis.plot(record.number + 1, getattr(record, name), "o-", ms=4, color=LEARNED)
            axis.set(title=title, xlabel="round")
            axis.xaxis.get_major_locator().set_params(integer=True)
            axis.set_ylim(bottom=0)
    return figure


def run_time(seconds: Mapping[str, float] | Sequence[Mapping[str, Any]]):
    """Show the seconds of every stage, or those of the records of `RunDirectory.read_metrics`, as bars."""
    stages = dict(seconds) if isinstance(seconds, Mapping) else stage_seconds(seconds)
    if not stages:
        raise InputError("expected at least one stage with its seconds; got none.")
    with new_figure(5.5, 0.35 * len(stages) + 0.7) as figure:
        axis = figure.subplots()
        bars = axis.barh(list(stages)[::-1], list(stages.values())[::-1], color=LEARNED, alpha=0.8, height=0.6)
        axis.bar_label(bars, [f"{value:.1f} s" for value in list(stages.values())[::-1]], padding=3, fontsize=8)
        axis.set_xlabel("seconds")
        axis.margins(x=0.15)
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
