"""Gates tabulated in V: what the compiled engine looks up instead of computing.

A row holds, for one cell of 0.05 mV, the parabolas through both ends and the middle of the cell of the steady states of
eleven gates and of the synapse, and of the shares by which each of them moves in one step, 1 - exp(-dt / tau).
Parabolas are right to 1e-9: the engine then follows the exact one as far as rounding lets any engine follow another.
"""

import numpy as np
from jaxtyping import Float

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
