"""Figures from draws and records.  Every function returns a matplotlib `Figure` and shows nothing."""

from unle.plot.budget_curves import BudgetCurve, budget_curves
from unle.plot.compare import compare_draws
from unle.plot.conditional import conditional_pairs
from unle.plot.health import (
    chain_ends,
    cloud_distances,
    density_and_draws,
    local_probabilities,
    member_means,
    normaliser_spread,
    sampler_path,
)
from unle.plot.levels import coverage_curve, rank_curves, rank_histograms
from unle.plot.marginals import marginals
from unle.plot.pairs import pairs
from unle.plot.predictive import predictive
from unle.plot.rounds import rounds
from unle.plot.slices import likelihood_slices
from unle.plot.timing import run_time
from unle.plot.training import training_curves
from unle.plot.voltages import voltages

__all__ = [
    "BudgetCurve",
    "budget_curves",
    "chain_ends",
    "cloud_distances",
    "compare_draws",
    "conditional_pairs",
    "coverage_curve",
    "density_and_draws",
    "likelihood_slices",
    "local_probabilities",
    "marginals",
    "member_means",
    "normaliser_spread",
    "pairs",
    "predictive",
    "rank_curves",
    "rank_histograms",
    "rounds",
    "run_time",
    "sampler_path",
    "training_curves",
    "voltages",
]
