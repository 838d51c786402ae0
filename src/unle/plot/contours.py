"""Credible regions of two parameters: the smallest areas that hold given shares of the draws."""

from typing import Any

import numpy as np
from jaxtyping import Float

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

    counts, x, y = np.histogram2d(values[:, 0], values[:, 1], bins=CELLS, range=limits)
    blur = SMOOTHER * _best_blur(values, limits)
    density = gaussian_filter(counts, blur, mode="reflect").T  # reflected: draws pile up at the ends of a prior
    order = np.argsort(-density.ravel())
    held = np.cumsum(counts.T.ravel()[order]) / max(len(values), 1)  # of the draws: a blurred density holds less
    places = [min(int(np.searchsorted(held, share)), len(held) - 1) for share in shares]
    levels = [float(density.ravel()[order[place]]) for place in places][::-1]
    return (x[1:] + x[:-1]) / 2, (y[1:] + y[:-1]) / 2, density, levels


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
