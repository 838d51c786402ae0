"""Valid rate and energy score per round, against the simulations spent: several methods in one figure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from unle.errors import InputError
from unle.plot import EXACT, FAINT, LEARNED, THIRD, new_figure, plain_logarithm

COLOURS = (LEARNED, EXACT, THIRD, "#CC79A7", "#56B4E9", FAINT)
MARKERS = "osd"  # one for each time that the colours begin again


@dataclass(frozen=True)
class RoundCurve:
    """A sequential method, round by round.

    Attributes:
        method: its name, for the legend.
        simulations: made before each round: the budget of the posterior that proposed it.
        valid: share of the round's simulations that are valid.
        energy: energy score of the round's valid simulations; NaN where unknown.
        published: drawn dashed, thin and with hollow marks, as a thing to compare with.
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
    if not curves:
        raise InputError("expected at least one curve; got none.")
    with new_figure(8.4, 3.4) as figure:
        left, right = figure.subplots(1, 2)
        for k, curve in enumerate(curves):
            look = {"ls": "--", "lw": 0.9, "ms": 3.5, "mfc": "none"} if curve.published else {"lw": 1.8, "ms": 5}
            look |= {"marker": MARKERS[k // len(COLOURS) % len(MARKERS)], "color": COLOURS[k % len(COLOURS)]}
            thousands = np.asarray(curve.simulations) / 1000
            left.plot(thousands, 100 * np.asarray(curve.valid), label=curve.method, **look)
            right.plot(thousands, np.asarray(curve.energy), **look)  # unknown values are gaps
        for name, simulations, valid in points:
            left.plot(simulations / 1000, 100 * valid, "kx", ms=6, label=name)
        left.set(title="valid simulations (%)", xlabel="simulations before the round (thousands)", ylim=(0, 100))
        right.set(title="energy score", xlabel="simulations before the round (thousands)", yscale="log")
        plain_logarithm(right.yaxis)
        figure.legend(loc="outside lower center", ncols=3)
    return figure
