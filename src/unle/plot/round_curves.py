"""Valid rate and energy score per round, against the simulations spent: several methods in one figure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from unle.errors import InputError
from unle.plot.style import EXACT, FAINT, LEARNED, THIRD, style

COLOURS = (LEARNED, EXACT, THIRD, "#CC79A7", "#56B4E9", FAINT)


@dataclass(frozen=True)
class RoundCurve:
    """A sequential method, round by round.

    Attributes:
        method: its name, for the legend.
        simulations: made before each round: the budget of the posterior that proposed it.
        valid: share of the round's simulations that are valid.
        energy: energy score of the round's valid simulations; NaN where unknown.
        published: drawn thin, as a thing to compare with.
    """

    method: str
    simulations: Float[np.ndarray, " round"]
    valid: Float[np.ndarray, " round"]
    energy: Float[np.ndarray, " round"]
    published: bool = False


def round_curves(curves: Sequence[RoundCurve], *, points: Sequence[tuple[str, float, float]] = ()):
    """Draw valid rate and energy score against simulations.

    Args:
        curves: one per method.
        points: single results as (name, simulations, valid rate), drawn as crosses.
    """
    from matplotlib.figure import Figure

    if not curves:
        raise InputError("expected at least one curve; got none.")
    with style():
        figure = Figure(figsize=(8.4, 3.4), layout="constrained")
        left, right = figure.subplots(1, 2)
        for curve, colour in zip(curves, COLOURS * len(curves), strict=False):
            look = {"color": colour, "lw": 0.9 if curve.published else 1.8, "ms": 3 if curve.published else 5}
            marker = "o--" if curve.published else "o-"
            thousands = np.asarray(curve.simulations) / 1000
            left.plot(thousands, 100 * np.asarray(curve.valid), marker, label=curve.method, **look)
            known = np.isfinite(curve.energy)
            right.plot(thousands[known], np.asarray(curve.energy)[known], marker, **look)
        for name, simulations, valid in points:
            left.plot(simulations / 1000, 100 * valid, "kx", ms=6, label=name)
        left.set(title="valid simulations (%)", xlabel="simulations before the round (thousands)", ylim=(0, 100))
        right.set(title="energy score", xlabel="simulations before the round (thousands)", yscale="log")
        right.yaxis.set_major_formatter("{x:g}")
        right.yaxis.set_minor_formatter("{x:.1g}")
        figure.legend(loc="outside lower center", ncols=3)
        figure.draw_without_rendering()
    return figure
