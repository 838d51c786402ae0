"""Figures of the benchmark and the paper, in the look of `unle.plot`.  Each is a matplotlib `Figure`, not shown."""

from unle_bench.plot.budget_curves import Series, budget_curves, stage_bars
from unle_bench.plot.densities import Panel, density_panels, kernel_density
from unle_bench.plot.round_curves import RoundCurve, round_curves
from unle_bench.plot.voltages import voltages

__all__ = [
    "Panel",
    "RoundCurve",
    "Series",
    "budget_curves",
    "density_panels",
    "kernel_density",
    "round_curves",
    "stage_bars",
    "voltages",
]
