"""The observation itself, among what was simulated before and after it was seen."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from unle.plot.inputs import as_draws, plain_label
from unle.plot.style import EXACT, FAINT, LEARNED, new_figure

SHARES = (0.025, 0.25, 0.75, 0.975)
MOST_ROWS = 20  # of an observation
NAMED = 16  # coordinates whose names are written below the axis
UNEVEN = 30.0  # ratio of spreads from which coordinates are drawn in units of their own spread


def observation(x_o: Any, *, simulations: Any = None, replicas: Any = None, names: Sequence[str] = ()):
    """Show an observation as a line over its coordinates.

    Args:
        x_o: the observation, (dim_x,), or rows of it.
        simulations: data simulated from the prior, (n, dim_x), drawn as a grey band.
        replicas: data simulated at posterior draws, (n, dim_x), drawn as blue bands that hold 50 % and 95 % of them.
        names: of the coordinates.

    Returns:
        The figure.  Where spreads of coordinates differ by more than a factor of thirty, each is drawn about its median
        in units of its own spread.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> figure = observation(np.zeros(20), simulations=rng.normal(size=(100, 20)))
        >>> len(figure.axes)
        1
    """
    rows = as_draws(np.atleast_2d(np.asarray(x_o, float)), "x_o")
    dim = rows.shape[1]
    before = None if simulations is None else as_draws(simulations, "simulations", dim)
    after = None if replicas is None else as_draws(replicas, "replicas", dim)
    centre, unit, ylabel = _units(after if before is None else before, dim)
    place = np.arange(1, dim + 1)
    with new_figure(7.6, 2.6) as figure:
        axis = figure.subplots()
        for values, colour, label in ((before, FAINT, "simulated from the prior"), (after, LEARNED, "replicas")):
            if values is None:
                continue
            low, first, third, high = (np.quantile(values, SHARES, axis=0) - centre) / unit
            axis.fill_between(place, low, high, color=colour, alpha=0.25, lw=0, label=f"95 % {label}")
            if colour == LEARNED:
                axis.fill_between(place, first, third, color=colour, alpha=0.45, lw=0, label=f"50 % {label}")
        for k, row in enumerate(rows[:MOST_ROWS]):
            marks = {"marker": "o", "ms": 3.0 if dim <= 60 else 0.0, "lw": 1.0, "color": EXACT}
            axis.plot(place, (row - centre) / unit, label=None if k else "x_o", **marks)
        axis.set(ylabel=ylabel, xlim=(0.5, dim + 0.5))
        if names and dim <= NAMED:
            axis.set_xticks(place, [plain_label(name) for name in names], rotation=30, ha="right")
        else:
            axis.set_xlabel("coordinate of x")
            axis.xaxis.get_major_locator().set_params(integer=True)
        figure.legend(*axis.get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure


def _units(values: np.ndarray | None, dim: int) -> tuple[np.ndarray, np.ndarray, str]:
    """Return what is subtracted from x, what it is divided by, and the label of the axis."""
    if values is not None:
        spread = np.maximum(np.subtract(*np.quantile(values, [0.84, 0.16], axis=0)) / 2, 1e-12)
        if spread.max() > UNEVEN * np.median(spread) or spread.min() * UNEVEN < np.median(spread):
            return np.median(values, axis=0), spread, "in spreads of the band"
    return np.zeros(dim), np.ones(dim), "x"
