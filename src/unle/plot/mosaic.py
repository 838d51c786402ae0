"""A pair plot of many parameters as one picture: 31 of them are 465 panels, too many to draw one by one.

Below the diagonal every cell is a density of two parameters, on the diagonal is the marginal, and above it is the
correlation, or the density of a reference if there is one.
"""

from typing import Any

import numpy as np
from jaxtyping import Float

from unle.plot.inputs import DrawSet, plain_label
from unle.plot.style import EXACT, FAINT, LEARNED, TRUTH, clear_to, new_figure

CELL = 32  # pixels of a density
SMOOTH = 0.8  # standard deviation of the blur, in pixels
SIDE = 0.62  # inches of a cell


def mosaic(
    sets: list[DrawSet],
    names: tuple[str, ...],
    limits: list[tuple[float, float]],
    *,
    marks: Float[np.ndarray, " dim"] | None = None,
):
    """Return the figure of one or two sets of draws; arguments as in `pairs`, checked there."""
    draws, other = sets[0], sets[1] if len(sets) > 1 else None
    dim = len(names)
    size = SIDE * dim
    with new_figure(size + 1.6, size + 1.6, layout=None) as figure:
        room = 1.3 / (size + 1.6)
        axis = figure.add_axes((room, room, 1 - room - 0.02, 1 - room - 0.02))
        _density(axis, draws.values, limits, draws.colour, below=True)
        if other is not None:
            _density(axis, other.values, limits, other.colour, below=False)
        else:
            _correlations(axis, np.nan_to_num(np.corrcoef(draws.values.T)))
        for one in sets:
            _marginals(axis, one.values, limits, one.colour)
        if marks is not None:
            _truth(axis, marks, limits)
        for edge in range(dim + 1):
            axis.axhline(edge, color=FAINT, lw=0.3)
            axis.axvline(edge, color=FAINT, lw=0.3)
        axis.set(xlim=(0, dim), ylim=(dim, 0), aspect="equal")
        middle = np.arange(dim) + 0.5
        ranges = [f"{low:.3g} to {high:.3g}" for low, high in limits]
        shown = [plain_label(name) for name in names]
        axis.set_xticks(middle, shown, rotation=60, ha="right", rotation_mode="anchor", fontsize=9)
        axis.set_yticks(middle, [f"{a}\n{b}" for a, b in zip(shown, ranges, strict=True)], fontsize=7.5)
        axis.tick_params(length=0)
        for spine in axis.spines.values():
            spine.set_visible(False)
        what = f"above: {other.label}" if other is not None else "above: correlations"
        axis.set_title(f"below the diagonal: {draws.label}; {what}", loc="left", fontsize=9)
    return figure


def _density(axis: Any, values: np.ndarray, limits: list, colour: str, *, below: bool) -> None:
    """Draw all cells of one triangle as one image."""
    from scipy.ndimage import gaussian_filter

    dim = values.shape[1]
    low, high = np.array(limits).T
    place = np.clip(((values - low) / (high - low) * CELL).astype(int), 0, CELL - 1)
    inside = (values >= low) & (values <= high)
    picture = np.zeros((dim * CELL, dim * CELL))
    for i in range(dim):
        for j in range(i):
            row, column = (i, j) if below else (j, i)
            both = inside[:, i] & inside[:, j]
            cell = np.zeros(CELL * CELL)
            np.add.at(cell, (CELL - 1 - place[both, row]) * CELL + place[both, column], 1.0)
            cell = gaussian_filter(cell.reshape(CELL, CELL), SMOOTH)
            block = picture[row * CELL : (row + 1) * CELL, column * CELL : (column + 1) * CELL]
            block[:] = np.sqrt(cell / max(cell.max(), 1e-12))  # the root shows what is faint
    image = axis.imshow(
        picture, extent=(0, dim, dim, 0), cmap=clear_to(colour), vmin=0, vmax=1, interpolation="nearest"
    )
    image.set_rasterized(True)


def _correlations(axis: Any, correlation: Float[np.ndarray, "dim dim"]) -> None:
    from matplotlib.patches import Circle

    dim = len(correlation)
    for i in range(dim):
        for j in range(i):
            value = correlation[i, j]
            colour = LEARNED if value < 0 else EXACT
            axis.add_patch(Circle((i + 0.5, j + 0.5), 0.45, color=colour, alpha=0.6 * abs(value), lw=0))
            axis.text(i + 0.5, j + 0.5, f"{value:.2f}", ha="center", va="center", fontsize=6.5)


def _marginals(axis: Any, values: np.ndarray, limits: list, colour: str) -> None:
    from matplotlib.collections import PolyCollection

    polygons = []
    for i, (low, high) in enumerate(limits):
        counts, _ = np.histogram(values[:, i], bins=CELL, range=(low, high))
        heights = np.repeat(counts / max(counts.max(), 1), 2)
        across = i + np.repeat(np.linspace(0, 1, CELL + 1), 2)[1:-1]
        polygons.append(
            np.concatenate([[[i, i + 1]], np.stack([across, i + 1 - 0.9 * heights], axis=1), [[i + 1, i + 1]]])
        )
    axis.add_collection(PolyCollection(polygons, facecolors=colour, alpha=0.3, edgecolors="none"))
    axis.add_collection(PolyCollection(polygons, facecolors="none", edgecolors=colour, linewidths=0.7))


def _truth(axis: Any, marks: np.ndarray, limits: list) -> None:
    from matplotlib.collections import LineCollection

    dim = len(marks)
    share = [(marks[i] - low) / (high - low) for i, (low, high) in enumerate(limits)]
    lines = []
    for i in np.flatnonzero(np.isfinite(share)):
        lines.append([(i + share[i], i), (i + share[i], dim)])
        lines.append([(0, i + 1 - share[i]), (i, i + 1 - share[i])])
    axis.add_collection(LineCollection(lines, colors=TRUTH, linewidths=0.6, linestyles="dashed"))
