"""How training went: the held-out gain, the energy gap and the health of the particles, chunk by chunk."""

from collections.abc import Mapping, Sequence
from typing import Any

from unle.errors import InputError
from unle.plot.style import EXACT, LEARNED, style

PANELS = (
    ("gain", "held-out gain over the base (nats)"),
    ("gap", "energy of data minus particles (nats)"),
    ("ess", "effective share of particles"),
)


def training_curves(metrics: Sequence[Mapping[str, Any]]):
    """Show the training records of a run.

    Args:
        metrics: records of `RunDirectory.read_metrics`; those with `stage` "training" are shown.

    Returns:
        The figure: one panel per quantity, one curve per energy (see `unle.methods.candidates`).

    Example:
        >>> records = [
        ...     {"stage": "training", "sees_theta": True, "chunk": i, "gain": 0.1 * i, "gap": 0.0, "ess": 1.0}
        ...     for i in range(3)
        ... ]
        >>> len(training_curves(records).axes)
        3
    """
    from matplotlib.figure import Figure

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
    with style():
        figure = Figure(figsize=(9.3, 3.0), layout="constrained")
        axes = figure.subplots(1, len(PANELS))
        for axis, (quantity, title) in zip(axes, PANELS, strict=True):
            for kind, label, colour, dashes in curves:
                chosen = [r for r in records if (bool(r["sees_theta"]), bool(r.get("continued", False))) == kind]
                if chosen:
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
        figure.draw_without_rendering()
    return figure
