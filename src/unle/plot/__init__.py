"""Figures from draws and records.  Every function returns a matplotlib `Figure` and shows nothing."""

from unle.plot.benchmark import Series, budget_curves, stage_bars
from unle.plot.compare import compare_draws
from unle.plot.conditional import conditional_pairs
from unle.plot.densities import Panel, density_panels, kernel_density
from unle.plot.health import (
    chain_ends,
    cloud_distances,
    density_and_draws,
    likelihood_rank,
    local_probabilities,
    member_means,
    normaliser_spread,
    sampler_path,
    training_path,
)
from unle.plot.levels import coverage_curve, rank_curves, rank_histograms
from unle.plot.marginals import marginals
from unle.plot.pairs import pairs
from unle.plot.predictive import predictive
from unle.plot.round_curves import RoundCurve, round_curves
from unle.plot.rounds import rounds
from unle.plot.slices import likelihood_slices
from unle.plot.timing import run_time
from unle.plot.training import training_curves
from unle.plot.voltages import voltages

__all__ = [
    "Panel",
    "Series",
    "RoundCurve",
    "budget_curves",
    "round_curves",
    "chain_ends",
    "cloud_distances",
    "compare_draws",
    "conditional_pairs",
    "coverage_curve",
    "density_and_draws",
    "density_panels",
    "kernel_density",
    "likelihood_rank",
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
    "stage_bars",
    "training_curves",
    "training_path",
    "voltages",
]
