"""Figures from draws and records.  Every function returns a matplotlib `Figure` and shows nothing."""

from unle.plot.compare import compare_draws
from unle.plot.pairs import pairs
from unle.plot.training import training_curves

__all__ = ["compare_draws", "pairs", "training_curves"]
