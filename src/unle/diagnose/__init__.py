"""Is the answer right?  Checks of a fitted posterior, and distances from a known one.

In: a posterior, its draws at an observation, the simulations and records of the fit, and the simulator (`FittedRun`).
Out: a `Check` for every question, with a verdict, numbers, and one sentence of advice; all of them as `Findings`.

To read: `record` (what a check is), then the file of a question

    observation         is the observation like the simulations?
    fit_records         did training work, and learn anything?
    round_records       did a sequential run stay around the observation?
    sampler_checks      did the sampler draw from what was learned?
    normaliser          is the normaliser known?  (z_of_theta: is it the same for every theta?)
    ensemble            would another seed have said the same?
    predictive_checks   do simulations at the draws look like the observation?
    calibration_checks  are intervals honest?  (calibration: many posteriors with known truths)
    local_test          is the posterior right at this observation?
    support_check       can the simulator produce the data at all draws?  (sharp_ends: does its noise end sharply?)
    data_chains         does the learned model keep data where they are?

and at last `runner`, which makes them all.  Two sets of draws are compared in `c2st_scores` and `distances`; `summary`,
`conditional_density` and `draws_export` give the answer in numbers and files.

Names are imported when first used: most of them need JAX.
"""

import importlib
from typing import Any

_NAMES = {
    "c2st_scores": "c2st c2st_fast c2st_fast_batch",
    "calibration": "Calibration calibrate calibrate_around",
    "calibration_checks": "coverage posterior_sbc sbc tarp",
    "conditional_density": "Conditional conditional",
    "data_chains": "short_run",
    "distances": "Discrepancy discrepancy energy_score",
    "draws_export": "export_draws",
    "ensemble": "ensemble_agreement",
    "findings": "Findings",
    "fit_records": "information training_health validity_calibration",
    "fitted_run": "FittedRun",
    "local_test": "local_c2st",
    "normaliser": "certificate learned_normaliser",
    "observation": "outlier",
    "predictive_checks": "ReplicaPairs predictive tail_rank",
    "record": "Check Skipped say_numbers short",
    "round_records": "Rounds lost_rounds rounds",
    "runner": "CHECKS default_checks run_checks",
    "sampler_checks": "density_grid grid_agreement inner_mixing sampler_health",
    "summary": "BayesFactor Summary bayes_factor hdi summarise",
    "support_check": "extreme_draws residual_levels support",
    "uniformity": "ecdf_band",
    "z_of_theta": "ZUniformity z_uniformity",
}
_HOMES = {name: f"unle.diagnose.{file}" for file, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'unle.diagnose' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
