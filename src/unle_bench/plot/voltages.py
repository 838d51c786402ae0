"""Voltage traces of a network, beside what was observed."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from unle.errors import InputError
from unle.plot import EXACT, FAINT, LEARNED, new_figure


def voltages(
    traces: Mapping[str, Float[np.ndarray, "neuron sample"]],
    *,
    step: float,
    neurons: Sequence[str],
    statistics: Mapping[str, Float[np.ndarray, " dim_x"]] | None = None,
    x_o: Float[np.ndarray, " dim_x"] | None = None,
    names: Sequence[str] = (),
    milliseconds: tuple[float, float] = (1000.0, 5000.0),
):
    """Draw traces at several parameters, one column each, and their statistics as multiples of the observed ones.

    Args:
        traces: voltages in mV by title, such as "posterior mean" and "MAP".
        step: between samples, in ms.
        neurons: names of the rows.
        statistics: by the same titles; drawn below if `x_o` is given.
        x_o: the observed statistics.
        names: of the statistics.
        milliseconds: the stretch to show.
    """
    if not traces:
        raise InputError("expected at least one trace; got none.")
    below = statistics is not None and x_o is not None
    first, last = (round(time / step) for time in milliseconds)
    rows = len(neurons) + below
    with new_figure(4.2 * len(traces), 1.1 * len(neurons) + 1.9 * below) as figure:
        heights = [1.0] * len(neurons) + [1.6] * below
        axes = figure.subplots(rows, len(traces), squeeze=False, height_ratios=heights)
        for column, (title, trace) in enumerate(traces.items()):
            shown = np.asarray(trace)[:, first:last]
            seconds = (first + np.arange(shown.shape[1])) * step / 1000
            every = max(1, round(0.25 / step))  # four points per ms: spikes keep their height
            for row, neuron in enumerate(neurons):
                axis = axes[row, column]
                axis.plot(seconds[::every], shown[row, ::every], lw=0.6, color=LEARNED)
                axis.set(ylim=(-85, 65), xlim=(seconds[0], seconds[-1]))
                axis.tick_params(labelbottom=row == len(neurons) - 1)
                if column == 0:
                    axis.set_ylabel(f"{neuron} (mV)")
            axes[0, column].set_title(title)
            axes[len(neurons) - 1, column].set_xlabel("seconds")
            if statistics is not None and x_o is not None:
                _ratios(axes[-1, column], np.asarray(statistics[title]), np.asarray(x_o), names, show_names=column == 0)
    return figure


def _ratios(axis, x: np.ndarray, x_o: np.ndarray, names: Sequence[str], *, show_names: bool) -> None:
    places = np.arange(len(x_o))[::-1]
    axis.axvline(1.0, color=FAINT, lw=0.8)
    axis.plot(x / x_o, places, "o", ms=3.5, color=EXACT)
    axis.set(yticks=places, xlabel="statistic / observed")
    axis.set_yticklabels(list(names) if show_names and len(names) == len(x_o) else [""] * len(x_o), fontsize=6)
