"""Training: from standardised simulations to fitted bases, energies, log-normalisers and probabilities of failure.

In: `Rows` (standardised parameters t and data w, dealt to the members of an ensemble), a random key and settings.  Out:
models of `unle.models` whose arrays are stacked along a leading axis of members, and how the fit went.

Read in this order:

* `loop`, the one training loop: init, step, stop;
* `rows`: who trains on which, and more simulations than fit in memory;
* `validation`: held-out scores, and how far they can be trusted;
* bases: `base_training`, `gaussian_training` with `closed_form_fits`, `noise_fit`, `residuals` (repeated measurements),
  `autoregressive_fit` (long data);
* energies: `training_particles`, `persistent_particles`, then `energy_training`, `energy_fit`, `paper_fit`,
  `score_matching`;
* log Z(theta): `log_normaliser_fit`, `paper_log_z`;
* P(valid | theta): `validity_fit`.

Symbols such as t, w, r, v and Z_pi are explained in docs/glossary.md.
"""

from unle.train.autoregressive_fit import LONGEST_SERIES, SHORTEST_SERIES, autoregressive_or, fit_to_cells
from unle.train.base_training import AbstractBaseTraining, FixedBase, FlowTraining
from unle.train.energy_fit import (
    Carried,
    EnergyFit,
    Frame,
    WarmStart,
    compile_energies,
    data_change,
    fit_energies,
    pair_particles,
    warm_start,
)
from unle.train.energy_training import EnergyTraining
from unle.train.gaussian_training import GaussianTraining, fit_gaussians
from unle.train.log_normaliser_fit import LogNormaliserTraining, estimate_log_z, fit_log_normaliser
from unle.train.loop import Descent, descend
from unle.train.noise_fit import Noisy, ends_early, fit_noise
from unle.train.paper_fit import PaperFit, PaperTraining, fit_as_printed, measure
from unle.train.paper_log_z import DiviChains, OnlineTraining, fit_divi, online_start, online_update
from unle.train.persistent_particles import PairedChains, PairedSmc, PersistentChains, WarmSmc
from unle.train.residuals import fit_shared_or_whole, single_measurements
from unle.train.rows import Rows, Splits, Stream, held_out_size, make_splits
from unle.train.score_matching import ScoreMatching, fit_score_matching
from unle.train.summary_fit import LearnedSummary, SummaryFit, fit_summary
from unle.train.training_particles import AbstractParticles, BaseParticles, Batch, DataParticles, JointSpace
from unle.train.validation import (
    Certificate,
    Validation,
    base_scores,
    certify,
    is_better,
    simplest_as_good,
    standard_error,
    validate,
)
from unle.train.validity_fit import ValidityFit, ValidityTraining, fit_validity

__all__ = [
    "AbstractBaseTraining",
    "AbstractParticles",
    "BaseParticles",
    "Batch",
    "Carried",
    "Certificate",
    "DataParticles",
    "Descent",
    "DiviChains",
    "FixedBase",
    "FlowTraining",
    "Frame",
    "GaussianTraining",
    "JointSpace",
    "LONGEST_SERIES",
    "LearnedSummary",
    "LogNormaliserTraining",
    "Noisy",
    "OnlineTraining",
    "PairedChains",
    "PairedSmc",
    "PaperFit",
    "PaperTraining",
    "PersistentChains",
    "Rows",
    "SHORTEST_SERIES",
    "ScoreMatching",
    "Splits",
    "Stream",
    "SummaryFit",
    "EnergyFit",
    "EnergyTraining",
    "Validation",
    "ValidityFit",
    "ValidityTraining",
    "WarmSmc",
    "WarmStart",
    "autoregressive_or",
    "base_scores",
    "certify",
    "compile_energies",
    "data_change",
    "descend",
    "ends_early",
    "estimate_log_z",
    "fit_as_printed",
    "fit_divi",
    "fit_gaussians",
    "fit_log_normaliser",
    "fit_noise",
    "fit_score_matching",
    "fit_shared_or_whole",
    "fit_to_cells",
    "fit_summary",
    "fit_energies",
    "fit_validity",
    "held_out_size",
    "is_better",
    "make_splits",
    "measure",
    "online_start",
    "online_update",
    "pair_particles",
    "simplest_as_good",
    "single_measurements",
    "standard_error",
    "validate",
    "warm_start",
]
