"""Is the answer right?  Scores against a known posterior, and checks that need none."""

from unle.diagnose.battery import CHECKS, Findings, default_checks, run_checks
from unle.diagnose.c2st import c2st, c2st_fast, c2st_fast_batch
from unle.diagnose.calibration import Calibration, calibrate
from unle.diagnose.certificate import certificate
from unle.diagnose.cloud import cloud
from unle.diagnose.conditional import Conditional, conditional
from unle.diagnose.coverage import coverage
from unle.diagnose.discrepancy import Discrepancy, discrepancy, energy_score
from unle.diagnose.evidence import Evidence
from unle.diagnose.export import export_draws
from unle.diagnose.grid import density_grid, grid_agreement
from unle.diagnose.information import information
from unle.diagnose.inner_mixing import inner_mixing
from unle.diagnose.learned_normaliser import learned_normaliser
from unle.diagnose.local_c2st import local_c2st
from unle.diagnose.lost_rounds import lost_rounds
from unle.diagnose.members import member_agreement
from unle.diagnose.posterior_sbc import calibrate_around, posterior_sbc
from unle.diagnose.predictive import predictive
from unle.diagnose.record import Check, Skipped
from unle.diagnose.sampler_health import sampler_health
from unle.diagnose.sbc import sbc
from unle.diagnose.short_run import short_run
from unle.diagnose.summary import BayesFactor, Summary, bayes_factor, summarise
from unle.diagnose.support import extreme_draws, residual_levels, support
from unle.diagnose.tail_rank import tail_rank
from unle.diagnose.tarp import tarp
from unle.diagnose.training_health import training_health
from unle.diagnose.validity_calibration import validity_calibration
from unle.diagnose.z_uniformity import ZUniformity, z_uniformity

__all__ = [
    "CHECKS",
    "BayesFactor",
    "Calibration",
    "Check",
    "Conditional",
    "Discrepancy",
    "Evidence",
    "Findings",
    "Skipped",
    "Summary",
    "ZUniformity",
    "bayes_factor",
    "c2st",
    "c2st_fast",
    "c2st_fast_batch",
    "calibrate",
    "calibrate_around",
    "certificate",
    "cloud",
    "conditional",
    "coverage",
    "default_checks",
    "density_grid",
    "discrepancy",
    "energy_score",
    "export_draws",
    "grid_agreement",
    "information",
    "inner_mixing",
    "learned_normaliser",
    "local_c2st",
    "lost_rounds",
    "member_agreement",
    "posterior_sbc",
    "predictive",
    "run_checks",
    "sampler_health",
    "sbc",
    "short_run",
    "summarise",
    "extreme_draws",
    "residual_levels",
    "support",
    "tail_rank",
    "tarp",
    "training_health",
    "validity_calibration",
    "z_uniformity",
]
