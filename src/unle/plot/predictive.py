"""Simulations at posterior draws beside the observation, coordinate by coordinate."""

import numpy as np

from unle.diagnose import Check
from unle.plot.style import EXACT, LEARNED, style

SHOWN = 40  # coordinates that get a box; more are drawn as bands


def predictive(check: Check):
    """Show where x_o lies among its replicas.

    Args:
        check: of `unle.diagnose.predictive`.

    Returns:
        The figure: bands of the replicas (50 % and 95 %) and x_o, each coordinate in units of its replicas' spread; and
        the energy score of x_o among those of the replicas.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    replicas, x_o = np.asarray(check.arrays["replicas"], float), np.asarray(check.arrays["x_o"], float)
    centre = np.median(replicas, axis=0)
    spread = np.maximum((np.quantile(replicas, 0.84, axis=0) - np.quantile(replicas, 0.16, axis=0)) / 2, 1e-12)
    low, first, third, high = (np.quantile(replicas, [0.025, 0.25, 0.75, 0.975], axis=0) - centre) / spread
    place = np.arange(1, replicas.shape[1] + 1)
    with style():
        figure = Figure(figsize=(7.6, 3.0), layout="constrained")
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
        figure.draw_without_rendering()
    return figure
