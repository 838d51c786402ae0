"""One or two parameters at a time, all others held: conditional pairs, and the log-likelihood along each."""

from typing import Any

import numpy as np

from unle.errors import InputError
from unle.plot.inputs import plain_label
from unle.plot.style import FAINT, LEARNED, TRUTH, clear_to, new_figure

POINTS = 200
COLUMNS = 5
DEEPEST = 12.0  # nats below the top that are shown


def conditional_pairs(record: Any):
    """Show the conditional densities of all pairs.

    Args:
        record: the `Conditional` that `unle.diagnose.conditional` returns.

    Returns:
        The figure: one image of all cells; the black dots mark where the others are held; numbers above the diagonal
        are conditional correlations.
    """
    dim, points = record.single.shape
    side = 1.5 if dim <= 5 else 0.9 if dim <= 12 else 0.62
    picture = np.zeros((dim * points, dim * points))
    for i in range(dim):
        for j in range(i):
            cell = record.pair[i, j][::-1]  # images begin above
            picture[i * points : (i + 1) * points, j * points : (j + 1) * points] = cell / max(cell.max(), 1e-300)
    low, high = record.axes[:, 0], record.axes[:, -1]
    share = (record.centre - low) / np.maximum(high - low, 1e-300)
    size = side * dim + 1.5
    below = 1.1 if dim > 4 else 0.4  # inches for names that are turned
    with new_figure(size, size - 1.4 + below, layout=None) as figure:
        axis = figure.add_axes((1.2 / size, below / (size - 1.4 + below), (size - 1.5) / size, 0.98 - below / size))
        axis.imshow(picture, extent=(0, dim, dim, 0), cmap=clear_to(LEARNED), vmin=0, vmax=1, rasterized=True)
        for i in range(dim):
            heights = record.single[i] / record.single[i].max()
            across = i + np.linspace(0, 1, points)
            axis.fill_between(across, i + 1, i + 1 - 0.9 * heights, color=LEARNED, alpha=0.3, lw=0)
            axis.plot(across, i + 1 - 0.9 * heights, color=LEARNED, lw=0.8)
            axis.plot(np.arange(i) + share[:i], np.full(i, i + 1 - share[i]), ".", ms=3, color=TRUTH)
            for j in range(i):
                axis.text(i + 0.5, j + 0.5, f"{record.correlation[i, j]:.2f}", ha="center", va="center", fontsize=7)
        for edge in range(dim + 1):
            axis.axhline(edge, color=FAINT, lw=0.3)
            axis.axvline(edge, color=FAINT, lw=0.3)
        shown = [plain_label(name) for name in record.names]
        axis.set(xlim=(0, dim), ylim=(dim, 0), aspect="equal")
        middle = np.arange(dim) + 0.5
        axis.set_xticks(middle, shown, rotation=60 if dim > 4 else 0, ha="right" if dim > 4 else "center")
        axis.set_yticks(
            middle, [f"{n}\n{a:.3g} to {b:.3g}" for n, a, b in zip(shown, low, high, strict=True)], fontsize=7
        )
        axis.tick_params(length=0)
        for spine in axis.spines.values():
            spine.set_visible(False)
    return figure


def likelihood_slices(posterior: Any, x_o: Any, centre: Any = None, *, low: Any = None, high: Any = None):
    """Show log posterior minus log prior through a point, along every axis.

    Args:
        posterior: fitted; anything with `prior` and `log_prob(theta, x_o)`.
        x_o: the observation.
        centre: the point, (d,); the most probable theta by default.
        low: begin of every axis; the prior's bound, or a low quantile of it, by default.
        high: end of every axis.
    """
    centre = np.asarray(posterior.map(x_o) if centre is None else centre, float)
    limits = posterior.prior.limits()
    low = np.asarray(limits[0] if low is None else low, float)
    high = np.asarray(limits[1] if high is None else high, float)
    dim = len(centre)
    if not np.isfinite(np.stack([low, high])).all():
        raise InputError("expected finite `low` and `high`; got NaN or inf.")
    axes_of = np.linspace(low, high, POINTS).T
    points = np.tile(centre, (dim, POINTS, 1))
    for i in range(dim):
        points[i, :, i] = axes_of[i]
    flat = points.reshape(-1, dim)
    of_prior = np.asarray(posterior.prior.log_prob(flat), float)
    logs = np.asarray(posterior.log_prob(flat, x_o), float) - np.where(np.isfinite(of_prior), of_prior, 0.0)
    logs = np.where(np.isfinite(logs), logs, np.nan).reshape(dim, POINTS)
    columns = min(dim, COLUMNS)
    lines = -(-dim // columns)
    with new_figure(1.9 * columns + 0.5, 1.6 * lines + 0.4) as figure:
        panels = figure.subplots(lines, columns, squeeze=False, sharey=True).ravel()
        for i, axis in enumerate(panels):
            if i >= dim:
                axis.set_visible(False)
                continue
            axis.plot(axes_of[i], logs[i] - np.nanmax(logs), color=LEARNED)
            axis.axvline(centre[i], color=TRUTH, lw=0.6, ls="--")
            axis.set(title=plain_label(posterior.prior.names[i]), ylim=(-DEEPEST, 0.5))
        figure.supylabel("log-likelihood (nats)", fontsize=9)
    return figure
