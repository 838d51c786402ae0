"""The numbers that the compiled engine is given, gathered from the specification."""

import math
from typing import NamedTuple

from unle_bench.pyloric import bursts, tables
from unle_bench.pyloric import specification as spec


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
    first_v: float = tables.FIRST_V
    rows_per_mv: float = tables.ROWS_PER_MV
    last_row: int = tables.LAST_ROW


class Rules(NamedTuple):
    """Of spikes and bursts."""

    spike_above: float = bursts.SPIKE_ABOVE
    gap: int = bursts.GAP
    shortest: int = bursts.SHORTEST
    plateau_above: float = bursts.PLATEAU_ABOVE
    plateau_every: int = bursts.PLATEAU_EVERY
