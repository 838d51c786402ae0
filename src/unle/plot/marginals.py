"""One panel per parameter: what was believed before, and after."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from unle.plot.inputs import as_draws, as_names, names_of, plain_label, span
from unle.plot.style import FAINT, LEARNED, TRUTH, new_figure

BINS = 60
COLUMNS = 5


def marginals(
    draws: Any, names: Sequence[str] | None = None, *, prior: Any = None, truth: Any = None, mode: Any = None
):
    """Show every parameter's posterior over its prior.

    Args:
        draws: `Draws`, ArviZ data, a table, or an array (n, d).
        names: of the parameters; those of `Draws` if not given.
        prior: the `Prior`, or draws of it, (m, d).
        truth: known values, (d,).
        mode: the most probable theta, (d,), marked by a triangle.

    Returns:
        The figure.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> figure = marginals(rng.normal(size=(500, 3)), prior=3 * rng.normal(size=(500, 3)))
        >>> len(figure.axes)
        3
    """
    from matplotlib.ticker import MaxNLocator

    names = names_of(draws, names)
    draws = as_draws(draws, "draws")
    dim = draws.shape[1]
    names = as_names(names, dim)
    before = None if prior is None else as_draws(prior, "prior", dim)
    columns = min(dim, COLUMNS)
    lines = -(-dim // columns)
    with new_figure(1.9 * columns + 0.4, 1.6 * lines + 0.5) as figure:
        axes = figure.subplots(lines, columns, squeeze=False).ravel()
        for i, axis in enumerate(axes):
            if i >= dim:
                axis.set_visible(False)
                continue
            shown = [draws[:, i]] if before is None else [draws[:, i], before[:, i]]
            limits = span(*shown, tail=0.001)
            if before is not None:
                heights, edges = np.histogram(before[:, i], bins=BINS, range=limits, density=True)
                axis.stairs(heights, edges, color=FAINT, fill=True, alpha=0.4, label="prior")
            heights, edges = np.histogram(draws[:, i], bins=BINS, range=limits, density=True)
            axis.stairs(heights, edges, color=LEARNED, label="posterior")
            axis.stairs(heights, edges, color=LEARNED, fill=True, alpha=0.25)
            if truth is not None:
                axis.axvline(np.asarray(truth, float)[i], color=TRUTH, lw=0.8, ls="--", label="truth")
            if mode is not None:
                axis.plot(np.asarray(mode, float)[i], 0, "^", ms=5, color=TRUTH, clip_on=False, label="mode")
            axis.set(xlim=limits, yticks=[], title=plain_label(names[i]))
            axis.set_ylim(bottom=0)
            axis.spines["left"].set_visible(False)
            axis.xaxis.set_major_locator(MaxNLocator(3))
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure
