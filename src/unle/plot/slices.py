"""The learned log-likelihood along one parameter at a time."""

from typing import Any

import numpy as np

from unle.errors import InputError
from unle.plot.inputs import plain_label
from unle.plot.style import LEARNED, TRUTH, new_figure

POINTS = 200
COLUMNS = 5
DEEPEST = 12.0  # nats below the top that are shown


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
    logs = np.asarray(posterior.log_prob(flat, x_o), float) - np.asarray(posterior.prior.log_prob(flat), float)
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
