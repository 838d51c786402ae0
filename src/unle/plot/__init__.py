"""Figures from draws, checks and records.  Functions return a matplotlib `Figure` and show nothing.

To read: `style` (the look), `inputs` (what is drawn), `pairs`, `marginals`, `conditional` (posteriors), `observation`
(data), `check_figures` (checks), `run_figures` (a run).  matplotlib is imported when a figure is made.
"""

from typing import Any

from unle.plot.check_figures import (
    chain_ends,
    coverage_curve,
    density_and_draws,
    likelihood_rank,
    local_probabilities,
    member_means,
    normaliser_spread,
    outlier_distances,
    predictive,
    rank_curves,
    rank_histograms,
    sampler_path,
    training_path,
)
from unle.plot.conditional import conditional_pairs, likelihood_slices
from unle.plot.inputs import plain_label
from unle.plot.marginals import marginals
from unle.plot.observation import observation
from unle.plot.pairs import compare_draws, draw_contours, pairs
from unle.plot.run_figures import rounds, run_time, stage_seconds, training_curves
from unle.plot.style import DENSITY, EXACT, FAINT, LEARNED, THIRD, as_svg, new_figure, plain_logarithm, style

__all__ = [
    "DENSITY",
    "EXACT",
    "FAINT",
    "LEARNED",
    "THIRD",
    "as_svg",
    "chain_ends",
    "outlier_distances",
    "compare_draws",
    "conditional_pairs",
    "coverage_curve",
    "density_and_draws",
    "draw_contours",
    "likelihood_rank",
    "likelihood_slices",
    "local_probabilities",
    "marginals",
    "member_means",
    "new_figure",
    "normaliser_spread",
    "observation",
    "pairs",
    "plain_label",
    "plain_logarithm",
    "predictive",
    "rank_curves",
    "rank_histograms",
    "rounds",
    "run_time",
    "sampler_path",
    "stage_seconds",
    "style",
    "training_curves",
    "training_path",
]


def __getattr__(name: str) -> Any:
    """Say what functions of other libraries are called here."""
    hint = "; try unle.plot.pairs(draws)" if name in ("pairplot", "plot_pair", "corner") else ""
    raise AttributeError(f"module 'unle.plot' has no attribute {name!r}{hint}")
