"""Densities of two numbers side by side: a learned one, draws of it, and the truth."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from unle.errors import InputError
from unle.plot import DENSITY, new_figure, plain_label


@dataclass(frozen=True)
class Panel:
    """A density on a grid.

    Attributes:
        title: above it.
        first: values of the horizontal axis, (i,).
        second: values of the vertical axis, (j,).
        density: (i, j); only its shape matters.
    """

    title: str
    first: Float[np.ndarray, " i"]
    second: Float[np.ndarray, " j"]
    density: Float[np.ndarray, "i j"]


def density_panels(rows: Sequence[Sequence[Panel | None]], names: Sequence[tuple[str, str]]):
    """Show rows of densities; all panels of a row share their axes.

    Args:
        rows: the panels; None leaves a gap.
        names: of the two axes, one pair per row.

    Example:
        >>> import numpy as np
        >>> axis = np.linspace(-2, 2, 20)
        >>> bump = np.exp(-axis[:, None] ** 2 - axis**2)
        >>> figure = density_panels([[Panel("learned", axis, axis, bump)] * 2], [("a", "b")])
        >>> len(figure.axes)
        2
    """
    if not rows or len(names) != len(rows):
        raise InputError(f"expected rows of panels, each with names; got {len(rows)} rows and {len(names)} names.")
    columns = max(map(len, rows))
    with new_figure(2.3 * columns + 0.5, 2.35 * len(rows) + 0.2) as figure:
        axes = figure.subplots(len(rows), columns, squeeze=False)
        for line, panels, (first, second) in zip(axes, rows, names, strict=True):
            shown = [panel for panel in panels if panel is not None]
            limits = [_span([getattr(panel, name) for panel in shown]) for name in ("first", "second")]
            for k, axis in enumerate(line):
                panel = panels[k] if k < len(panels) else None
                if panel is None:
                    axis.set_visible(False)
                    continue
                _draw(axis, panel)
                axis.set(xlim=limits[0], ylim=limits[1], xlabel=plain_label(first))
                axis.set_title(panel.title)
                if k == 0:
                    axis.set_ylabel(plain_label(second))
    return figure


def kernel_density(
    draws: Float[np.ndarray, "n 2"], first: Float[np.ndarray, " i"], second: Float[np.ndarray, " j"], *, width: float
) -> Float[np.ndarray, "i j"]:
    """Estimate a density from draws, on a grid, by a histogram that is blurred.

    Args:
        draws: of the two numbers.
        first: grid of the first, evenly spaced.
        second: grid of the second.
        width: standard deviation of the blur, as a share of the draws' standard deviation.
    """
    from scipy.ndimage import gaussian_filter

    edges = [_edges(axis) for axis in (first, second)]
    counts, *_ = np.histogram2d(draws[:, 0], draws[:, 1], bins=edges)
    steps = [axis[1] - axis[0] for axis in (first, second)]
    return gaussian_filter(counts, [width * sd / step for sd, step in zip(draws.std(axis=0), steps, strict=True)])


def _edges(axis: Float[np.ndarray, " i"]) -> Float[np.ndarray, " k"]:
    half = (axis[1] - axis[0]) / 2
    return np.concatenate([axis - half, [axis[-1] + half]])


def _draw(axis: Any, panel: Panel) -> None:
    image = axis.pcolormesh(panel.first, panel.second, panel.density.T, cmap=DENSITY, shading="auto", vmin=0)
    image.set_rasterized(True)


def _span(axes: list[np.ndarray]) -> tuple[float, float]:
    return max(float(axis.min()) for axis in axes), min(float(axis.max()) for axis in axes)
