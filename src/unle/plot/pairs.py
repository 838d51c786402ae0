"""Pair plots: every parameter by itself on the diagonal, every pair of parameters below it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from unle.errors import InputError
from unle.plot.inputs import as_draws, as_names, names_of, plain_label, span
from unle.plot.mosaic import mosaic
from unle.plot.style import EXACT, LEARNED, TRUTH, new_figure

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
    labels: tuple[str, str] = ("draws", "reference"),
):
    """Show the marginals and the pairs of a posterior.

    Args:
        draws: `Draws`, ArviZ data, a table, or an array (n, d), d up to 40; beyond eight, densities and correlations in
            one picture.
        names: of the parameters; those of `Draws` if not given.
        reference: draws to compare with, of the same kinds.
        truth: known parameter values, (d,), marked in every panel.
        labels: what the two sets of draws are called.

    Returns:
        The figure.

    Example:
        >>> import numpy as np
        >>> figure = pairs(np.random.default_rng(0).normal(size=(500, 3)), ["a", "b", "c"], truth=[0, 0, 0])
        >>> len(figure.axes)
        6
    """
    from matplotlib.lines import Line2D

    names = names_of(draws, names)
    draws = as_draws(draws, "draws")
    dim = draws.shape[1]
    if dim > MOST:
        raise InputError(f"expected at most {MOST} parameters in a pair plot; got {dim}; try draws[:, :{MOST}].")
    names = as_names(names, dim)
    sets = [(draws, LEARNED, labels[0])]
    if reference is not None:
        sets.append((as_draws(reference, "reference", dim), EXACT, labels[1]))
    marks = None if truth is None else as_draws(np.atleast_2d(truth), "truth", dim)[0]
    limits = [_limits([values[:, i] for values, _, _ in sets], marks, i) for i in range(dim)]
    if dim > PANELS:
        other = sets[1][0] if len(sets) > 1 else None
        return mosaic(draws, names, limits, reference=other, marks=marks, labels=labels)
    side = max(1.7 if dim <= 4 else 1.3 if dim <= 7 else 1.1, 3.0 / dim)

    with new_figure(side * dim + 0.6, side * dim + 0.6) as figure:
        grid = figure.add_gridspec(dim, dim)
        for row in range(dim):
            for column in range(row + 1):
                axis = figure.add_subplot(grid[row, column])
                for values, colour, _ in sets:
                    if row == column:
                        _marginal(axis, values[:, row], limits[row], colour)
                    else:
                        _scatter(axis, values[:, [column, row]], colour, others=len(sets) - 1)
                if marks is not None:
                    axis.axvline(marks[column], color=TRUTH, lw=0.8, ls="--")
                if marks is not None and row != column:
                    axis.axhline(marks[row], color=TRUTH, lw=0.8, ls="--")
                _dress(axis, row, column, dim, names, limits)
        handles = [Line2D([], [], color=colour, lw=2, label=label) for _, colour, label in sets]
        if marks is not None:
            handles.append(Line2D([], [], color=TRUTH, lw=0.8, ls="--", label="truth"))
        if len(handles) > 1:
            # The upper right is empty, except for a single parameter.
            figure.legend(handles=handles, loc="upper right" if dim > 1 else "outside upper center")
        figure.align_labels()
    return figure


def _limits(columns: list[np.ndarray], marks: np.ndarray | None, i: int) -> tuple[float, float]:
    low, high = span(*columns, tail=TAIL)
    return (low, high) if marks is None else span(np.array([low, high]), marks[i : i + 1], share=1e-3)


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
