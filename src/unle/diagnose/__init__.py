"""Is the answer right?  Checks of a fitted posterior, and distances from a known one.

In: a posterior, its draws at an observation, the simulations and records of the fit, and the simulator (`FittedRun`).
Out: a `Check` for every question, with a verdict, numbers, and one sentence of advice; all of them as `Findings`.

To read: `record` (what a check is), then the file of a question

    observation         is the observation like the simulations?
    fit_records         did training work, and learn anything?  Did the rounds stay around the observation?
    sampler_checks      did the sampler draw from what was learned?  Would another seed have said the same?
    normaliser          is the normaliser known?  (z_of_theta: is it the same for every theta?)
    predictive_checks   do simulations at the draws look like the observation?
    calibration_checks  are intervals honest?  (calibration: many posteriors with known truths)
    local_test          is the posterior right at this observation?
    support_check       can the simulator produce the data at all draws?  Does its noise end sharply?
    data_chains         does the learned model keep data where they are?

and at last `runner`, which makes them all.  Two sets of draws are compared in `c2st_scores` and `distances`; `summary`
gives the answer in numbers and files.

Names are imported when first used: most of them need JAX.
"""

import importlib
from typing import Any

_NAMES = {
    "c2st_scores": "c2st c2st_fast c2st_fast_batch",
    "calibration": "Calibration calibrate calibrate_around",
    "calibration_checks": "coverage posterior_sbc sbc tarp",
    "data_chains": "short_run",
    "distances": "Discrepancy discrepancy energy_score",
    "fit_records": "Rounds information lost_rounds rounds training_health validity_calibration",
    "fitted_run": "FittedRun",
    "local_test": "local_c2st",
    "normaliser": "certificate learned_normaliser",
    "observation": "outlier",
    "p_values": "ecdf_band",
    "predictive_checks": "Replicas predictive tail_rank",
    "record": "Check Findings Skipped say_numbers short",
    "runner": "CHECKS check default_checks run_checks",
    "sampler_checks": "density_grid ensemble_agreement grid_agreement inner_mixing sampler_health",
    "summary": "BayesFactor Conditional Summary bayes_factor conditional export_draws hdi summarise",
    "support_check": "extreme_draws residual_levels support",
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
