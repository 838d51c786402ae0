"""Two parameters, side by side: learned draws, exact draws, and the learned density."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from unle.errors import InputError
from unle.plot.inputs import as_draws, as_names, names_of, plain_label, span
from unle.plot.style import DENSITY, EXACT, LEARNED, new_figure

Grid = tuple[np.ndarray, np.ndarray, np.ndarray]  # x (i,), y (j,), values (j, i)


def compare_draws(
    draws: Any,
    reference: Any,
    names: Sequence[str] | None = None,
    *,
    density: Grid | None = None,
    title: str | None = None,
    labels: tuple[str, str] = ("learned draws", "exact draws"),
):
    """Show draws of two parameters beside reference draws, on the same axes.

    Args:
        draws: learned draws, (n, 2), as `Draws`, ArviZ data, a table or an array.
        reference: the draws to compare with, (m, 2), likewise.
        names: of the two parameters; those of `Draws` if not given.
        density: a third panel: the axes x (i,) and y (j,) of a grid and the density (j, i) on it.
        title: above the panels.
        labels: what the two sets of draws are called.

    Returns:
        The figure.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> figure = compare_draws(rng.normal(size=(500, 2)), rng.normal(size=(500, 2)), ["a", "b"])
        >>> len(figure.axes)
        2
    """
    names = names_of(draws, names)
    draws = as_draws(draws, "draws")
    if draws.shape[1] != 2:
        raise InputError(f"expected draws of two parameters; got {draws.shape[1]}; try unle.plot.pairs.")
    reference = as_draws(reference, "reference", 2)
    names = as_names(names, 2)
    limits = [span(draws[:, i], reference[:, i]) for i in range(2)]
    panels = 2 if density is None else 3
    with new_figure(3.0 * panels + 0.3, 3.5) as figure:
        axes = figure.subplots(1, panels, sharex=True, sharey=True, squeeze=False)[0]
        # Equal numbers of points of equal size: one panel must not look denser because it has more draws.
        shown = min(len(draws), len(reference), 5000)
        for axis, values, label, colour in zip(axes, (draws, reference), labels, (LEARNED, EXACT), strict=False):
            points = values[np.linspace(0, len(values) - 1, shown).astype(int)]
            axis.plot(points[:, 0], points[:, 1], ".", ms=1.5, alpha=0.4, mew=0, color=colour, rasterized=True)
            axis.set_title(label)
        if density is not None:
            x, y, value = density
            if np.shape(value) != (len(y), len(x)):
                raise InputError(f"expected a density of shape ({len(y)}, {len(x)}); got {np.shape(value)}.")
            mesh = axes[2].pcolormesh(x, y, value, cmap=DENSITY, shading="auto", rasterized=True)
            axes[2].set_title("learned density")
            figure.colorbar(mesh, ax=axes[2], shrink=0.8, aspect=25)
        for axis in axes:
            axis.set(xlim=limits[0], ylim=limits[1], xlabel=plain_label(names[0]))
        axes[0].set_ylabel(plain_label(names[1]))
        if title:
            figure.suptitle(title)
    return figure
