"""Levels of known truths: the picture of simulation-based calibration, coverage and TARP.

All three are numbers that should be uniform on [0, 1].  Their distribution function, minus the diagonal, is drawn with
the band in which 95 % of all uniform samples stay from end to end: a curve that leaves it is news.
"""

import numpy as np

from unle.diagnose import Check
from unle.errors import InputError
from unle.plot.inputs import plain_label
from unle.plot.style import EXACT, FAINT, LEARNED, THIRD, new_figure

POINTS = 99
BINS = 20
MOST_NAMED = 6  # curves with a name of their own


def rank_histograms(check: Check):
    """Show the ranks of every parameter as histograms, with the band of each bar's 99 % range.

    Args:
        check: of `unle.diagnose.sbc`.
    """
    from scipy.stats import binom

    levels = _levels(check)
    dim = levels.shape[1]
    columns = min(dim, 6)
    lines = -(-dim // columns)
    with new_figure(1.6 * columns + 0.5, 1.4 * lines + 0.5) as figure:
        axes = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True).ravel()
        low, high = binom.ppf([0.005, 0.995], len(levels), 1 / BINS)
        for i, axis in enumerate(axes):
            if i >= dim:
                axis.set_visible(False)
                continue
            counts, edges = np.histogram(levels[:, i], bins=BINS, range=(0, 1))
            axis.axhspan(low, high, color=FAINT, alpha=0.3, lw=0)
            axis.stairs(counts, edges, color=LEARNED, fill=True, alpha=0.8)
            axis.set_title(plain_label(_names(check, dim)[i]), fontsize=9)
            axis.set_xticks([0, 0.5, 1])
        figure.supxlabel("level of the truth in its posterior", fontsize=9)
    return figure


def rank_curves(check: Check):
    """Show the distribution function of the levels minus the diagonal, with its simultaneous 95 % band.

    Args:
        check: of `unle.diagnose.sbc` or `tarp`.
    """
    levels = _levels(check)
    grid = np.linspace(0, 1, POINTS + 2)[1:-1]
    low, high = _band(len(levels), grid)
    named = levels.shape[1] <= MOST_NAMED
    with new_figure(4.6, 3.2) as figure:
        axis = figure.subplots()
        axis.fill_between(grid, low - grid, high - grid, color=FAINT, alpha=0.3, lw=0, label="95 % band")
        axis.axhline(0.0, color=FAINT, lw=0.6)
        for i, colour in zip(range(levels.shape[1]), _colours(levels.shape[1]), strict=True):
            curve = np.searchsorted(np.sort(levels[:, i]), grid, side="right") / len(levels)
            label = plain_label(_names(check, levels.shape[1])[i]) if named else None
            axis.plot(grid, curve - grid, color=colour, lw=1.2 if named else 0.8, label=label)
        axis.set(xlim=(0, 1), xlabel="level of the truth", ylabel="share of truths below, minus level")
        figure.legend(loc="outside upper center", ncols=4)
    return figure


def coverage_curve(check: Check):
    """Show how often regions hold the truth, against how often they say so.

    Args:
        check: of `unle.diagnose.coverage`.
    """
    levels = _levels(check)[:, 0]
    grid = np.linspace(0, 1, POINTS + 2)[1:-1]
    low, high = _band(len(levels), grid)
    with new_figure(3.6, 3.4) as figure:
        axis = figure.subplots()
        axis.fill_between(grid, low, high, color=FAINT, alpha=0.3, lw=0, label="95 % band")
        axis.plot([0, 1], [0, 1], color=FAINT, lw=0.6)
        covered = np.searchsorted(np.sort(levels), grid, side="right") / len(levels)
        axis.plot(grid, covered, color=LEARNED, label="coverage")
        axis.set(
            xlim=(0, 1), ylim=(0, 1), xlabel="content of the region", ylabel="share of truths inside", aspect="equal"
        )
        axis.text(0.03, 0.97, "too cautious", va="top", fontsize=8, color=FAINT, transform=axis.transAxes)
        axis.text(0.97, 0.2, "overconfident", ha="right", fontsize=8, color=FAINT, transform=axis.transAxes)
        axis.legend(loc="lower right")
    return figure


def _band(n: int, grid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    from unle.diagnose import ecdf_band  # here: it needs scipy

    return ecdf_band(n, grid)


def _levels(check: Check) -> np.ndarray:
    if "levels" not in check.arrays:
        raise InputError(f"expected a check with levels, such as sbc; got {check.name}.")
    levels = np.asarray(check.arrays["levels"], float)
    return levels if levels.ndim == 2 else levels[:, None]


def _names(check: Check, dim: int) -> tuple[str, ...]:
    return check.labels if len(check.labels) == dim else ("levels",) * dim


def _colours(n: int) -> list[str]:
    palette = [LEARNED, EXACT, THIRD, "#CC79A7", "#56B4E9", "#E69F00"]
    return palette[:n] if n <= len(palette) else [LEARNED] * n
