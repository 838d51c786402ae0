"""Pair plots: every parameter by itself on the diagonal, every pair of parameters below it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from unle.errors import InputError
from unle.plot.contours import draw_contours
from unle.plot.inputs import DrawSet, as_limits, as_marks, draw_sets, plain_label, span
from unle.plot.mosaic import mosaic
from unle.plot.style import FAINT, TRUTH, new_figure

PANELS = 8  # parameters drawn panel by panel; more become one picture of many cells
MOST = 40  # parameters
POINTS = 2000  # per panel
TAIL = 0.001  # of the draws may lie outside the axes, on either side
BINS = 50


def pairs(
    draws: Any,
    names: Sequence[str] | None = None,
    *,
    reference: Any = None,
    truth: Any = None,
    labels: Sequence[str] | None = None,
    parameters: Sequence[str] | None = None,
    limits: Any = None,
    colours: Sequence[str] | None = None,
    dots: bool = False,
):
    """Show the marginals and the pairs of one posterior, or of several over each other.

    Args:
        draws: `Draws`, ArviZ data, a `Prior`, a table, or an array (n, d), d up to 40; beyond eight, densities and
            correlations in one picture. A list of these, or a dictionary from labels to these, is drawn together.
        names: of the parameters; those of `Draws` if not given.
        reference: draws to compare with, of the same kinds.
        truth: known parameter values, (d,) or by name, marked in every panel.
        labels: what the sets of draws are called.
        parameters: names of those to show; all by default.
        limits: of the axes: a `Prior`, a dictionary from names to (low, high), or one pair per parameter shown.
        colours: one for each set of draws.
        dots: draw single draws instead of the areas that hold 50 % and 95 % of them.

    Returns:
        The figure.

    Example:
        >>> import numpy as np
        >>> figure = pairs(np.random.default_rng(0).normal(size=(500, 3)), ["a", "b", "c"], truth=[0, 0, 0])
        >>> len(figure.axes)
        6
    """
    options = {"reference": reference, "labels": labels, "colours": colours, "parameters": parameters}
    sets, every, shown = draw_sets(draws, names, **options)
    dim = len(shown)
    if dim > MOST:
        raise InputError(f"expected at most {MOST} parameters in a pair plot; got {dim}; try parameters=[...].")
    marks = as_marks(truth, every, shown)
    given = as_limits(limits, every, shown)
    ends = [given[i] or _limits([one.values[:, i] for one in sets], marks, i) for i in range(dim)]
    shown_names = tuple(every[i] for i in shown)
    if dim > PANELS:
        if len(sets) > 2:
            raise InputError(
                f"expected at most {PANELS} parameters for {len(sets)} sets of draws; try parameters=[...]."
            )
        return mosaic(sets, shown_names, ends, marks=marks)
    return _panels(sets, shown_names, ends, marks, dots=dots)


def _panels(
    sets: list[DrawSet], names: tuple[str, ...], limits: list[tuple[float, float]], marks: Any, *, dots: bool
) -> Any:
    from matplotlib.lines import Line2D

    dim = len(names)
    side = max(1.7 if dim <= 4 else 1.3 if dim <= 7 else 1.1, 3.0 / dim)
    with new_figure(side * dim + 0.6, side * dim + 0.6) as figure:
        grid = figure.add_gridspec(dim, dim)
        for row in range(dim):
            for column in range(row + 1):
                axis = figure.add_subplot(grid[row, column])
                for k, (values, _, colour) in enumerate(sorted(sets, key=lambda one: one.colour != FAINT)):
                    both = values[:, [column, row]]
                    if row == column:
                        _marginal(axis, values[:, row], limits[row], colour)
                    elif dots:
                        _scatter(axis, both, colour, others=len(sets) - 1)
                    else:
                        draw_contours(axis, both, (limits[column], limits[row]), colour, filled=len(sets) < 4 or k == 0)
                _dress(axis, row, column, dim, names, limits)
                _mark(axis, row, column, marks)
        handles = [Line2D([], [], color=one.colour, lw=2, label=one.label) for one in sets]
        if marks is not None:
            handles.append(Line2D([], [], color=TRUTH, lw=0.8, ls="--", label="truth"))
        if len(handles) > 1:
            # The upper right is empty, except for a single parameter.
            figure.legend(handles=handles, loc="upper right" if dim > 1 else "outside upper center")
        figure.align_labels()
    return figure


def _mark(axis: Any, row: int, column: int, marks: Float[np.ndarray, " dim"] | None) -> None:
    if marks is None:
        return
    if np.isfinite(marks[column]):
        axis.axvline(marks[column], color=TRUTH, lw=0.8, ls="--")
    if row != column and np.isfinite(marks[row]):
        axis.axhline(marks[row], color=TRUTH, lw=0.8, ls="--")


def _limits(columns: list[np.ndarray], marks: np.ndarray | None, i: int) -> tuple[float, float]:
    low, high = span(*columns, tail=TAIL)
    if marks is None or not np.isfinite(marks[i]):
        return low, high
    return span(np.array([low, high]), marks[i : i + 1], share=1e-3)


def _marginal(axis: Any, values: Float[np.ndarray, " n"], limits: tuple[float, float], colour: str) -> None:
    heights, edges = np.histogram(values, bins=BINS, range=limits, density=True)
    axis.stairs(heights, edges, color=colour, lw=1.0)
    axis.stairs(heights, edges, color=colour, fill=True, alpha=0.15)


def _scatter(axis: Any, values: Float[np.ndarray, "n 2"], colour: str, *, others: int) -> None:
    points = values[np.linspace(0, len(values) - 1, min(len(values), POINTS)).astype(int)]
    alpha = 0.3 if others else 0.4
    axis.plot(points[:, 0], points[:, 1], ".", ms=1.5, mew=0, alpha=alpha, color=colour, rasterized=True)


def _dress(axis: Any, row: int, column: int, dim: int, names: tuple[str, ...], limits: list[tuple[float, float]]):
    """Set limits, labels on the outer panels only, and few ticks."""
    from matplotlib.ticker import MaxNLocator

    axis.set_xlim(limits[column])
    axis.xaxis.set_major_locator(MaxNLocator(3, prune="both"))
    if row == column:
        axis.set_yticks([])
        axis.spines["left"].set_visible(False)
        axis.set_ylim(bottom=0)
        axis.set_title(plain_label(names[row]), fontsize=9)
    else:
        axis.set_ylim(limits[row])
        axis.yaxis.set_major_locator(MaxNLocator(3, prune="both"))
    if row == dim - 1:
        axis.set_xlabel(plain_label(names[column]))
        axis.tick_params(axis="x", labelrotation=45 if dim > 4 else 0)
    else:
        axis.tick_params(axis="x", labelbottom=False)
    if column == 0 and row > 0:
        axis.set_ylabel(plain_label(names[row]))
    elif row != column:
        axis.tick_params(axis="y", labelleft=False)
