"""Pictures of checks: one small figure each.

Levels of known truths are the picture of simulation-based calibration, coverage and TARP.  All three are numbers that
should be uniform on [0, 1].  Their distribution function, minus the diagonal, is drawn with the band in which 95 % of
all uniform samples stay from end to end: a curve that leaves it is news.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from jaxtyping import Float

from unle.diagnose import Check
from unle.errors import InputError
from unle.plot.inputs import plain_label
from unle.plot.style import EXACT, FAINT, LEARNED, THIRD, clear_to, new_figure

SIZE = (4.4, 2.8)  # inches
SHOWN = 40  # coordinates that get a box; more are drawn as bands
ACROSS = 60  # letters that fit beside each other in the legend of a small figure
HANDLE = 8  # letters that the line before a name takes, with its gaps
POINTS = 99
BINS = 20
MOST_NAMED = 6  # curves with a name of their own


def outlier_distances(check: Check):
    """Show how far x_o is from the simulations, among how far they are from each other."""
    with _panel() as (figure, axis):
        distances = np.asarray(check.arrays["distances"], float)
        axis.hist(distances, bins=50, color=LEARNED, alpha=0.6, label="simulations")
        for k, value in enumerate(np.asarray(check.arrays["observed"], float)[:20]):
            axis.axvline(value, color=EXACT, label=None if k else "x_o")
        axis.set(xlabel="distance to the fifth neighbour", yticks=[])
        axis.legend()
    return figure


def predictive(check: Check):
    """Show where x_o lies among its replicas.

    Args:
        check: of `unle.diagnose.predictive`.

    Returns:
        The figure: bands of the replicas (50 % and 95 %) and x_o, each coordinate in units of its replicas' spread; and
        the energy score of x_o among those of the replicas.
    """
    from matplotlib.ticker import MaxNLocator

    replicas, x_o = np.asarray(check.arrays["replicas"], float), np.asarray(check.arrays["x_o"], float)
    centre = np.median(replicas, axis=0)
    spread = _spread(replicas)
    low, first, third, high = (np.quantile(replicas, [0.025, 0.25, 0.75, 0.975], axis=0) - centre) / spread
    place = np.arange(1, replicas.shape[1] + 1)
    with new_figure(7.6, 3.0) as figure:
        left, right = figure.subplots(1, 2, width_ratios=(2, 1))
        if len(place) <= SHOWN:
            left.vlines(place, low, high, color=LEARNED, lw=1.5, alpha=0.5, label="95 % of replicas")
            left.vlines(place, first, third, color=LEARNED, lw=5, alpha=0.7, label="50 % of replicas")
        else:
            left.fill_between(place, low, high, color=LEARNED, alpha=0.2, lw=0, label="95 % of replicas")
            left.fill_between(place, first, third, color=LEARNED, alpha=0.4, lw=0, label="50 % of replicas")
        for k, row in enumerate(x_o[:20]):
            style_of = "D" if len(place) <= SHOWN else "-"
            left.plot(place, (row - centre) / spread, style_of, ms=4, lw=1, color=EXACT, label=None if k else "x_o")
        left.set(xlabel="coordinate of x", ylabel="in spreads of the replicas")
        left.xaxis.set_major_locator(MaxNLocator(10, integer=True))
        left.margins(x=0.1)
        figure.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=3)
        right.hist(check.arrays["scores"], bins=30, color=LEARNED, alpha=0.6, label="replicas")
        right.axvline(check.numbers["energy_score"], color=EXACT, label="x_o")
        right.set(xlabel="energy score", yticks=[])
    return figure


def _spread(replicas: Float[np.ndarray, "n data"]) -> Float[np.ndarray, " data"]:
    """Return half the width of the middle 68 % of each coordinate; the standard deviation, or 1, if that is zero."""
    middle = (np.quantile(replicas, 0.84, axis=0) - np.quantile(replicas, 0.16, axis=0)) / 2
    sd = replicas.std(axis=0)
    rounding = 1e-6 * np.abs(replicas).max(axis=0)
    return np.where(middle > rounding, middle, np.where(sd > rounding, sd, 1.0))


def sampler_path(check: Check):
    """Show R-hat and effective draws by parameter, and the tempering path if there was one."""
    has_path = "temperatures" in check.arrays
    with _panels(3 if has_path else 2) as (figure, axes):
        place = np.arange(len(check.arrays["r_hat"]))
        axes[0].plot(place, np.minimum(check.arrays["r_hat"], 5), "o", ms=4, color=LEARNED)
        axes[0].axhline(1.05, color=EXACT, lw=0.8, ls="--", label="1.05")
        axes[0].set(title="R-hat", ylim=(0.99, max(1.06, 1.02 * float(np.min([5, check.numbers["r_hat"]])))))
        axes[0].legend()
        axes[1].plot(place, check.arrays["ess_bulk"], "o", ms=4, color=LEARNED, label="bulk")
        axes[1].plot(place, check.arrays["ess_tail"], "^", ms=4, color=THIRD, label="tail")
        axes[1].axhline(400, color=EXACT, lw=0.8, ls="--")
        axes[1].set(title="effective draws")
        axes[1].set_ylim(bottom=0)
        axes[1].legend()
        for axis in axes[:2]:
            _name_ticks(axis, check.labels)
        if has_path:
            path = np.asarray(check.arrays["temperatures"], float)
            axes[2].plot(np.arange(1, len(path) + 1), path, ".-", color=LEARNED, label="temperature")
            axes[2].plot(np.arange(1, len(path) + 1), check.arrays["ess_path"], ".--", color=THIRD, label="ESS / N")
            axes[2].set(title="tempering", xlabel="step", ylim=(0, 1.05))
            axes[2].legend()
    return figure


def training_path(check: Check):
    """Show the held-out gain, with the best chunk marked, and the energy gap; of a descent, its losses."""
    with _panels(2 if "gain" in check.arrays else 1) as (figure, axes):
        axes = np.atleast_1d(axes)
        if "gain" in check.arrays:
            gain, gap = (np.asarray(check.arrays[name], float) for name in ("gain", "gap"))
            chunks, best = np.arange(1, len(gain) + 1), int(check.numbers["best_chunk"]) - 1
            axes[0].plot(chunks, gain, ".-", color=LEARNED)
            axes[0].plot(chunks[best], gain[best], "D", ms=5, color=EXACT, label="best")
            axes[0].set(title="held-out gain (nats)")
            axes[1].plot(chunks, gap, ".-", color=LEARNED)
            for limit in (-0.5, 0.5):
                axes[1].axhline(limit, color=EXACT, lw=0.8, ls="--")
            axes[1].set(title="energy gap (nats)")
            for axis in axes:
                axis.axhline(0, color=FAINT, lw=0.6, zorder=0)
        else:
            chunks = np.arange(1, len(check.arrays["loss"]) + 1)
            axes[0].plot(chunks, check.arrays["loss"], ".--", color=THIRD, label="training")
            axes[0].plot(chunks, check.arrays["held_out"], ".-", color=LEARNED, label="held out")
            axes[0].set(title="loss")
        axes[0].legend()
        for axis in axes:
            axis.set_xlabel("chunk of training")
            axis.xaxis.get_major_locator().set_params(integer=True)
    return figure


def density_and_draws(check: Check):
    """Show the density on the grid, with draws over it."""
    draws, axis_0 = np.asarray(check.arrays["draws"], float), check.arrays["axis_0"]
    if "axis_1" not in check.arrays:
        with _panel() as (figure, axis):
            axis.hist(draws[:, 0], bins=60, density=True, color=FAINT, alpha=0.6, label="draws")
            axis.plot(axis_0, check.arrays["density"], color=LEARNED, label="density")
            axis.legend()
        return figure
    with _panels(2, shared=True) as (figure, (axis, other)):
        density = np.asarray(check.arrays["density"]).T
        axis.pcolormesh(axis_0, check.arrays["axis_1"], density, cmap=clear_to(LEARNED), rasterized=True)
        axis.set_title("density")
        other.plot(draws[:, 0], draws[:, 1], ".", ms=1.5, mew=0, alpha=0.5, color=LEARNED, rasterized=True)
        other.set_title("draws")
    return figure


def member_means(check: Check):
    """Show every member's own posterior mean, in standard deviations of the mixture."""
    with _panel() as (figure, axis):
        means = np.asarray(check.arrays["means"], float)
        for row in means:
            axis.plot(np.arange(len(row)), row, "o", ms=4, color=LEARNED, alpha=0.7)
        axis.axhline(0, color=FAINT, lw=0.8)
        _name_ticks(axis, check.labels)
        limit = max(1.0, 1.1 * float(np.abs(means).max()))
        axis.set(ylim=(-limit, limit), ylabel="member's mean, in sd of the mixture")
    return figure


def chain_ends(check: Check):
    """Show where chains from data ended, beside other data, in the first two directions that matter."""
    with _panels(2, shared=True) as (figure, (left, right)):
        ends, others = (np.asarray(check.arrays[name], float) for name in ("ends", "others"))
        _, _, directions = np.linalg.svd(others - others.mean(axis=0), full_matrices=False)
        for axis, values, title, colour in ((left, others, "data", EXACT), (right, ends, "after long chains", LEARNED)):
            flat = (values - others.mean(axis=0)) @ directions[:2].T
            axis.plot(flat[:, 0], flat[:, -1], ".", ms=4, mew=0, color=colour, alpha=0.7, rasterized=True)
            axis.set_title(title)
    return figure


def local_probabilities(check: Check):
    """Show the statistic at x_o among those by chance."""
    with _panel() as (figure, axis):
        axis.hist(check.arrays["null"], bins=30, color=LEARNED, alpha=0.6, label="by chance")
        axis.axvline(check.numbers["statistic"], color=EXACT, label="at x_o")
        axis.set(xlabel="mean squared conviction of the classifier", yticks=[])
        axis.set_xlim(left=0)
        axis.legend()
    return figure


def likelihood_rank(check: Check):
    """Show the log-likelihood of x_o among those of its replicas."""
    with _panel() as (figure, axis):
        axis.hist(check.arrays["of_replicas"], bins=30, color=LEARNED, alpha=0.6, label="replicas")
        axis.axvline(float(check.arrays["of_x_o"][0]), color=EXACT, label="x_o, mean over the draws")
        axis.set(xlabel="log q(x | theta) at posterior draws", yticks=[])
        axis.legend()
    return figure


def normaliser_spread(check: Check):
    """Show log Z over the posterior."""
    with _panel() as (figure, axis):
        log_z = np.asarray(check.arrays["log_z"], float)
        axis.hist(log_z - log_z.mean(), bins=30, color=LEARNED, alpha=0.6)
        limit = max(0.5, 1.1 * float(np.abs(log_z - log_z.mean()).max()))
        axis.set(xlabel="log Z(theta) at posterior draws (nats, about its mean)", yticks=[], xlim=(-limit, limit))
    return figure


@contextmanager
def _panel() -> Iterator[Any]:
    with new_figure(*SIZE) as figure:
        yield figure, figure.subplots()


@contextmanager
def _panels(n: int, *, shared: bool = False) -> Iterator[Any]:
    with new_figure(2.6 * n + 0.4, 2.6) as figure:
        yield figure, figure.subplots(1, n, sharex=shared, sharey=shared)


def _name_ticks(axis: Any, labels: tuple[str, ...]) -> None:
    """Write parameter names below an axis; of many, every so many."""
    names = [plain_label(name) for name in labels]
    step = max(1, len(names) // 8)
    axis.set_xticks(np.arange(len(names))[::step], names[::step], rotation=45 if len(names) > 3 else 0)
    axis.margins(x=0.2)


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
        handles, labels = axis.get_legend_handles_labels()
        columns = ACROSS // (max(map(len, labels)) + HANDLE)
        figure.legend(handles, labels, loc="outside upper center", ncols=min(max(columns, 1), 4))
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
