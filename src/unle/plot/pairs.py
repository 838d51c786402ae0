"""Pair plots: areas that hold given shares of the draws of two parameters, for every pair of them.

A pair plot of many parameters is one picture (`mosaic`): 31 of them are 465 panels, too many to draw one by one.
`compare_draws` shows two parameters side by side: learned draws, exact draws, and the learned density.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from unle.errors import InputError, other_names
from unle.plot.inputs import DrawSet, as_draws, as_limits, as_marks, as_names, draw_sets, names_of, plain_label, span
from unle.plot.style import DENSITY, EXACT, FAINT, LEARNED, TRUTH, clear_to, new_figure

CELL = 32  # pixels of a density
SMOOTH = 0.8  # standard deviation of the blur, in pixels
SIDE = 0.62  # inches of a cell
PANELS = 8  # parameters drawn panel by panel; more become one picture of many cells
MOST = 40  # parameters
POINTS = 2000  # per panel
TAIL = 0.001  # of the draws may lie outside the axes, on either side
BINS = 50

SHARES = (0.5, 0.95)
CELLS = 80  # of a grid, along each axis
BLURS = (1.2, 1.7, 2.4, 3.4, 4.8)  # cells: standard deviations of the kernel to choose from
PIECES = 20  # of the draws, every other of which is held out to choose
SMOOTHER = 1.3  # than is best for the density: outlines show noise more than areas do


def credible_levels(
    values: Float[np.ndarray, "n 2"],  # draws of two parameters
    # ends of both axes; what lies outside counts as outside every area
    limits: tuple[tuple[float, float], tuple[float, float]],
    shares: tuple[float, ...] = SHARES,  # of all draws, ascending
) -> tuple[np.ndarray, np.ndarray, Float[np.ndarray, "cell cell"], list[float]]:
    """Return the middles of a grid, a smooth density of the draws on it, and the levels whose areas hold the shares.

    Returns:
        x (i,), y (j,), the density (j, i), and one level per share, the largest share first.

    Example:
        >>> draws = np.random.default_rng(0).normal(size=(20_000, 2))
        >>> x, y, density, levels = credible_levels(draws, ((-4.0, 4.0), (-4.0, 4.0)))
        >>> bool(density[density >= levels[0]].sum() / density.sum() > 0.9), len(levels)
        (True, 2)
    """
    from scipy.ndimage import gaussian_filter

    limits = _end_at_draws(values, limits)
    counts, x, y = np.histogram2d(values[:, 0], values[:, 1], bins=CELLS, range=limits)
    blur = SMOOTHER * _best_blur(values, limits)
    density = gaussian_filter(counts, blur, mode="reflect").T  # reflected: draws pile up at the ends of a prior
    order = np.argsort(-density.ravel())
    held = np.cumsum(counts.T.ravel()[order]) / max(len(values), 1)  # of the draws: a blurred density holds less
    places = [min(int(np.searchsorted(held, share)), len(held) - 1) for share in shares]
    levels = [float(density.ravel()[order[place]]) for place in places][::-1]
    return (x[1:] + x[:-1]) / 2, (y[1:] + y[:-1]) / 2, density, levels


def _end_at_draws(values: Float[np.ndarray, "n 2"], limits: Sequence[tuple[float, float]]) -> tuple:
    """Return limits that no draw lies beyond, so that areas end where the draws do: at the walls of a prior."""
    found = []
    for column, (low, high) in zip(values.T, limits, strict=True):
        ends = (max(low, float(column.min())), min(high, float(column.max()))) if len(column) else (low, high)
        found.append(ends if ends[1] > ends[0] else (low, high))
    return tuple(found)


def _best_blur(values: Float[np.ndarray, "n 2"], limits: tuple) -> float:
    """Return the blur under which one half of the draws is likeliest, given the other."""
    from scipy.ndimage import gaussian_filter

    # Neighbouring draws may be copies of each other: halves are made of longer pieces.
    half = (np.arange(len(values)) * PIECES // max(len(values), 1)) % 2 == 0
    seen, held = (np.histogram2d(*part.T, bins=CELLS, range=limits)[0] for part in (values[half], values[~half]))
    scores = [np.sum(held * np.log(gaussian_filter(seen, blur, mode="reflect") + 1e-3)) for blur in BLURS]
    return BLURS[int(np.argmax(scores))]


def draw_contours(
    axis: Any, values: Float[np.ndarray, "n 2"], limits: tuple, colour: str, *, filled: bool = True
) -> None:
    """Draw the areas that hold 50 % and 95 % of the draws into a panel of a figure of your own.

    Args:
        axis: of matplotlib.
        values: draws of two parameters.
        limits: ends of both axes, ((low, high), (low, high)).
        colour: of the lines, and lighter of the areas.
        filled: whether areas are filled.
    """
    from matplotlib.colors import to_rgba

    x, y, density, levels = credible_levels(values, limits)
    top = float(density.max())
    if not 0 < levels[0] < top:
        axis.plot(values[:1, 0], values[:1, 1], ".", color=colour)  # no draw to be seen, or all in one cell
        return
    levels = sorted({*levels})
    if filled:
        shades = [to_rgba(colour, alpha) for alpha in (0.22, 0.55)][-len(levels) :]
        axis.contourf(x, y, density, levels=[*levels, 1.01 * top], colors=shades)
    axis.contour(x, y, density, levels=levels, colors=[colour], linewidths=[0.7, 1.0][-len(levels) :])


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


@other_names(
    "unle.plot.pairs(draws, truth=[0.1, 0.2], colours=['tab:red'])",
    points="truth",
    reference_values="truth",
    colors="colours",
    samples="draws",
    subset="parameters",
)
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
