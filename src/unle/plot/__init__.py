"""Figures from draws and records.  Every function returns a matplotlib `Figure` and shows nothing."""

from unle.plot.compare import compare_draws
from unle.plot.conditional import conditional_pairs
from unle.plot.health import (
    chain_ends,
    density_and_draws,
    likelihood_rank,
    local_probabilities,
    member_means,
    normaliser_spread,
    outlier_distances,
    sampler_path,
    training_path,
)
from unle.plot.inputs import plain_label
from unle.plot.levels import coverage_curve, rank_curves, rank_histograms
from unle.plot.marginals import marginals
from unle.plot.pairs import pairs
from unle.plot.predictive import predictive
from unle.plot.rounds import rounds
from unle.plot.slices import likelihood_slices
from unle.plot.style import DENSITY, EXACT, FAINT, LEARNED, THIRD, plain_logarithm, style
from unle.plot.timing import run_time
from unle.plot.training import training_curves

__all__ = [
    "DENSITY",
    "EXACT",
    "FAINT",
    "LEARNED",
    "THIRD",
    "chain_ends",
    "outlier_distances",
    "compare_draws",
    "conditional_pairs",
    "coverage_curve",
    "density_and_draws",
    "likelihood_rank",
    "likelihood_slices",
    "local_probabilities",
    "marginals",
    "member_means",
    "normaliser_spread",
    "pairs",
    "plain_label",
    "plain_logarithm",
    "predictive",
    "rank_curves",
    "rank_histograms",
    "rounds",
    "run_time",
    "sampler_path",
    "style",
    "training_curves",
    "training_path",
]
