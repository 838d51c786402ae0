"""One panel per parameter: what was believed before, and after."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from unle.plot.inputs import as_limits, as_marks, draw_sets, plain_label, span
from unle.plot.style import FAINT, TRUTH, new_figure

BINS = 60
COLUMNS = 5


def marginals(
    draws: Any,
    names: Sequence[str] | None = None,
    *,
    prior: Any = None,
    truth: Any = None,
    mode: Any = None,
    labels: Sequence[str] | None = None,
    parameters: Sequence[str] | None = None,
    limits: Any = None,
    colours: Sequence[str] | None = None,
):
    """Show every parameter's posterior over its prior; several posteriors over each other.

    Args:
        draws: `Draws`, ArviZ data, a table, or an array (n, d); or a list or a dictionary of several.
        names: of the parameters; those of `Draws` if not given.
        prior: the `Prior`, or draws of it, (m, d).
        truth: known values, (d,) or by name.
        mode: the most probable theta, (d,) or by name, marked by a triangle.
        labels: what the sets of draws are called.
        parameters: names of those to show; all by default.
        limits: of the axes: a `Prior`, a dictionary from names to (low, high), or one pair per parameter shown.
        colours: one for each set of draws.

    Returns:
        The figure.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> figure = marginals(rng.normal(size=(500, 3)), prior=3 * rng.normal(size=(500, 3)))
        >>> len(figure.axes)
        3
    """
    sets, every, shown = draw_sets(draws, names, labels=labels, colours=colours, parameters=parameters)
    if len(sets) == 1 and labels is None:
        sets = [sets[0]._replace(label="posterior")]
    if prior is not None:
        before, _, _ = draw_sets(draws, names, reference=prior, parameters=parameters)
        sets = [before[-1]._replace(label="prior", colour=FAINT), *sets]
    given, known = as_limits(limits, every, shown), as_marks(truth, every, shown)
    best = as_marks(mode, every, shown, "mode")
    columns = min(len(shown), COLUMNS)
    lines = -(-len(shown) // columns)
    with new_figure(1.9 * columns + 0.4, 1.6 * lines + 0.5) as figure:
        axes = figure.subplots(lines, columns, squeeze=False).ravel()
        for i, axis in enumerate(axes):
            if i >= len(shown):
                axis.set_visible(False)
                continue
            ends = given[i] or span(*(one.values[:, i] for one in sets), tail=0.001)
            _panel(axis, [(one.values[:, i], one.label, one.colour) for one in sets], ends)
            if known is not None and np.isfinite(known[i]):
                axis.axvline(known[i], color=TRUTH, lw=0.8, ls="--", label="truth")
            if best is not None and np.isfinite(best[i]):
                axis.plot(best[i], 0, "^", ms=5, color=TRUTH, clip_on=False, label="mode")
            axis.set_title(plain_label(every[shown[i]]))
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure


def _panel(axis: Any, columns: list[tuple[np.ndarray, str, str]], limits: tuple[float, float]) -> None:
    """Draw histograms over each other."""
    from matplotlib.ticker import MaxNLocator

    for values, label, colour in columns:
        heights, edges = np.histogram(values, bins=BINS, range=limits, density=True)
        if colour == FAINT:
            axis.stairs(heights, edges, color=colour, fill=True, alpha=0.4, label=label)
            continue
        axis.stairs(heights, edges, color=colour, label=label)
        axis.stairs(heights, edges, color=colour, fill=True, alpha=0.25 if len(columns) <= 2 else 0.12)
    axis.set(xlim=limits, yticks=[])
    axis.set_ylim(bottom=0)
    axis.spines["left"].set_visible(False)
    axis.xaxis.set_major_locator(MaxNLocator(3))
