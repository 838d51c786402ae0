"""Results of a benchmark over the number of simulations: one panel per task, one line per method."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unle.errors import InputError
from unle.plot import EXACT, FAINT, LEARNED, THIRD, new_figure, plain_logarithm

# Okabe and Ito's colours, in the order in which methods take them
PALETTE = (LEARNED, THIRD, EXACT, "#CC79A7", "#E69F00", "#56B4E9", "#777777", "#8B5A2B")
COLUMNS = 4  # panels in a row
CHANCE = 0.5
C2ST_TICKS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
PERFECT, INCOMPLETE = "0.5: as good as exact", "not all observations"  # in the legend
ENTRY = 1.9  # inches of an entry of the legend
ASIDE = 1.05  # factor between the budgets of neighbouring colours, so that equal marks do not hide each other


@dataclass(frozen=True)
class Series:
    """One line.

    Attributes:
        label: in the legend.
        budgets: numbers of simulations.
        values: one per budget.
        errors: standard errors, or None; NaN where there is none. Bars with caps.
        deviations: standard deviations, likewise. Thin lines without caps.
        partial: for each value, whether it is of some observations only: hollow marks; or None.
        colour: an index into the palette; a method and its published counterpart share it.
        published: drawn dashed, with crosses.
    """

    label: str
    budgets: Sequence[int]
    values: Sequence[float]
    errors: Sequence[float] | None = None
    deviations: Sequence[float] | None = None
    partial: Sequence[bool] | None = None
    colour: int = 0
    published: bool = False


def budget_curves(
    panels: Mapping[str, Sequence[Series]], *, label: str = "C2ST", logarithmic: bool = False, chance: bool = True
):
    """Show numbers against the budget, task by task.

    Args:
        panels: the lines of every task.
        label: of the vertical axis.
        logarithmic: scale of the vertical axis.
        chance: mark 1/2, and show the range from there to 1.

    Example:
        >>> lines = [Series("ours", [1000, 10000], [0.6, 0.52]), Series("theirs", [1000], [0.7], published=True)]
        >>> len(budget_curves({"two_moons": lines}).axes)
        1
    """
    from matplotlib.ticker import NullLocator

    if not panels:
        raise InputError("expected at least one panel; got none.")
    rows, columns = _grid(len(panels))
    with new_figure(max(2.3 * columns + 0.4, 4.4), 2.3 * rows + 0.7) as figure:
        axes = figure.subplots(rows, columns, squeeze=False, sharey=chance).ravel()
        handles: dict[str, Any] = {}
        for axis, (task, lines) in zip(axes, panels.items(), strict=False):
            for line in lines:
                handles.setdefault(line.label, _draw(axis, line))
            axis.set_title(task.replace("_", " "))
            axis.set_xscale("log")
            budgets = sorted({b for line in lines for b in line.budgets})
            axis.set_xticks(budgets)
            if budgets:  # or with one budget its methods would fill the whole width
                axis.set_xlim(budgets[0] / 2, budgets[-1] * 2)
            axis.xaxis.set_major_formatter(_budget)
            axis.xaxis.set_minor_locator(NullLocator())
            if logarithmic:
                axis.set_yscale("log")
                plain_logarithm(axis.yaxis)
            axis.set_xlabel("simulations")
            if chance:
                handles[PERFECT] = axis.axhline(CHANCE, color=FAINT, lw=0.8, zorder=0)
                axis.set_ylim(0.48, 1.02)
                axis.set_yticks(C2ST_TICKS)
        for row in range(rows):
            axes[row * columns].set_ylabel(label)
        if any(any(line.partial or ()) for lines in panels.values() for line in lines):
            handles[INCOMPLETE] = _hollow_mark()
        if chance:
            handles[PERFECT] = handles.pop(PERFECT)  # after all methods
        _legend(figure, axes[len(panels) :], handles)
    return figure


def _grid(panels: int) -> tuple[int, int]:
    """Return rows and columns, as few rows as panels of that width allow, and these about equally full."""
    rows = math.ceil(panels / COLUMNS)
    return rows, math.ceil(panels / rows)


def _legend(figure: Any, free: Any, handles: Mapping[str, Any]) -> None:
    """Put the legend where no panel is, if there is such a place, else below all."""
    for axis in free:
        axis.set_axis_off()
    if len(free):
        free[0].legend(handles.values(), handles.keys(), loc="center left")
    else:
        columns = _columns(figure, len(handles))
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns)


def _hollow_mark() -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], ls="none", marker="o", ms=4, color=FAINT, mfc="white")


def _draw(axis: Any, line: Series) -> Any:
    """Draw a line; matplotlib draws no bar where an error is NaN."""
    colour = PALETTE[line.colour % len(PALETTE)]
    look = {"ls": "--", "marker": "x", "alpha": 0.75, "lw": 0.9} if line.published else {"ls": "-", "marker": "o"}
    places = [budget * ASIDE ** (line.colour % len(PALETTE) - 1) for budget in line.budgets]
    drawn = axis.errorbar(places, line.values, yerr=line.errors, ms=4, color=colour, capsize=2, **look)
    if line.deviations is not None:
        axis.errorbar(places, line.values, yerr=line.deviations, ls="none", color=colour, elinewidth=0.6, zorder=1)
    chosen = [k for k, hollow in enumerate(line.partial or ()) if hollow]
    hollow = {"ls": "none", "marker": "o", "ms": 4, "color": colour, "mfc": "white", "zorder": 4}
    axis.plot([places[k] for k in chosen], [line.values[k] for k in chosen], **hollow)
    return drawn.lines[0]


def _columns(figure: Any, entries: int) -> int:
    """Return how many entries of a legend fit beside each other."""
    return max(1, min(4, entries, int(figure.get_figwidth() // ENTRY)))


def _budget(value: Any, _: Any = None) -> str:
    """Return 1k, 10k, 100k."""
    return f"{value / 1000:g}k" if value >= 1000 else f"{value:g}"


def stage_bars(panels: Mapping[str, Mapping[int, Mapping[str, float]]], *, label: str = "minutes"):
    """Show where the time of runs went: one panel per task, one bar per budget, cut into stages.

    Args:
        panels: task -> budget -> stage -> minutes.
        label: of the vertical axis.
    """
    from matplotlib.patches import Patch

    if not panels:
        raise InputError("expected at least one panel; got none.")
    stages = list(dict.fromkeys(stage for task in panels.values() for bar in task.values() for stage in bar))
    rows, columns = _grid(len(panels))
    with new_figure(max(2.1 * columns + 0.4, 4.0), 1.9 * rows + 0.6) as figure:
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for k, (axis, (task, bars)) in enumerate(zip(axes, panels.items(), strict=False)):
            for place, budget in enumerate(sorted(bars)):
                bottom = 0.0
                for number, stage in enumerate(stages):
                    height = bars[budget].get(stage, 0.0)
                    axis.bar(place, height, bottom=bottom, color=PALETTE[number], width=0.6)
                    bottom += height
            axis.set_xticks(range(len(bars)), [_budget(budget) for budget in sorted(bars)])
            axis.set_title(task.replace("_", " "))
            if k % columns == 0:
                axis.set_ylabel(label)
        for axis in axes[len(panels) :]:
            axis.set_visible(False)
        marks = [Patch(color=PALETTE[number], label=stage) for number, stage in enumerate(stages)]
        figure.legend(handles=marks, loc="outside lower center", ncols=len(marks))
    return figure
