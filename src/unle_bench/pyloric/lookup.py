"""What the compiled engine is given: its constants, and gates tabulated in V, which it looks up.

A row holds, for one cell of 0.05 mV, the parabolas through both ends and the middle of the cell of the steady states of
eleven gates and of the synapse, and of the shares by which each of them moves in one step, 1 - exp(-dt / tau).
Parabolas are right to 1e-9: the engine then follows the exact one as far as rounding lets any engine follow another.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from unle_bench.pyloric import bursts
from unle_bench.pyloric import specification as spec
from unle_bench.pyloric.specification import STEP, TAU_GLUTAMATE, rates, steady_states, synapse

FIRST_V, LAST_V = -100.0, 140.0  # mV: from below E_K to beyond E_Ca
ROWS_PER_MV = 20.0
LAST_ROW = round((LAST_V - FIRST_V) * ROWS_PER_MV) - 1
COLUMNS = 12


def columns(v: Float[np.ndarray, " n"]) -> tuple[Float[np.ndarray, "n columns"], Float[np.ndarray, "n columns"]]:
    """Return steady states and shares of eleven gates and of glutamate, in float64.

    The share of glutamate is not limited to one here, since a corner has no good parabola.
    """
    steady = np.stack(steady_states(v, np.exp), axis=-1)
    shares = -np.expm1(-STEP * np.stack(rates(v, np.exp), axis=-1))
    activation, speed = synapse(v, np.exp)
    return np.column_stack([steady, activation]), np.column_stack([shares, STEP / TAU_GLUTAMATE * speed])


def table() -> Float[np.ndarray, "rows 6 columns"]:
    """Return, per cell, three coefficients of the steady states and three of the shares."""
    v = FIRST_V + np.arange(2 * LAST_ROW + 3) / (2 * ROWS_PER_MV)
    parts = []
    for values in columns(v):
        left, middle, right = values[:-2:2], values[1:-1:2], values[2::2]
        curve = 2 * (left - 2 * middle + right)
        parts += [left, right - left - curve, curve]
    return np.ascontiguousarray(np.stack(parts, axis=1))


class Constants(NamedTuple):
    """Of one step; named as in the specification."""

    nernst: float = spec.NERNST
    calcium_outside: float = spec.CALCIUM_OUTSIDE
    calcium_rest: float = spec.CALCIUM_REST
    calcium_per_current: float = spec.CALCIUM_PER_CURRENT
    calcium_decay: float = -math.expm1(-spec.STEP / spec.TAU_CALCIUM)
    calcium_half: float = spec.CALCIUM_HALF_KCA
    e_na: float = spec.E_NA
    e_k: float = spec.E_K
    e_h: float = spec.E_H
    e_leak: float = spec.E_LEAK
    e_glutamate: float = spec.E_GLUTAMATE
    e_acetylcholine: float = spec.E_ACETYLCHOLINE
    acetylcholine_speed: float = spec.TAU_GLUTAMATE / spec.TAU_ACETYLCHOLINE
    step_per_capacitance: float = spec.STEP / spec.CAPACITANCE
    noise: float = spec.NOISE
    first_v: float = FIRST_V
    rows_per_mv: float = ROWS_PER_MV
    last_row: int = LAST_ROW


class Rules(NamedTuple):
    """Of spikes and bursts."""

    spike_above: float = bursts.SPIKE_ABOVE
    gap: int = bursts.GAP
    shortest: int = bursts.SHORTEST
    plateau_above: float = bursts.PLATEAU_ABOVE
    plateau_every: int = bursts.PLATEAU_EVERY
