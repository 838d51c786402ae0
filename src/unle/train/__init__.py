"""Training: from standardised simulations to fitted bases, energies, log-normalisers and probabilities of failure.

In: `Rows` (standardised parameters t and data w, dealt to the members of an ensemble), a random key and settings.  Out:
models of `unle.models` whose arrays are stacked along a leading axis of members, and how the fit went.

Read in this order:

* `loop`, the one training loop: init, step, stop;
* data: `rows` (who trains on which), `stream` (more simulations than fit in memory);
* held-out scores: `validation`, `certificate`;
* bases: `base_training`, `descent`, `gaussian_base` with `regression`, `gaussian_process_fit` and `gaussian_network`,
  `noise_fit`, `shared_base` (repeated measurements), `autoregressive_fit` (long data);
* energies: `joint` and `abstract_particles`, `importance_particles`, `persistent_particles`, `per_pair_particles`, then
  `energy_training`, `energy_fit`, `warm_starts`, `paper_fit`, `score_matching`;
* log Z(theta): `log_z`, `log_normaliser_fit`, `divi`, `online_log_z`;
* P(valid | theta): `validity_fit`.

Symbols such as t, w, r, v and Z_pi are explained in docs/glossary.md.
"""

from unle.train.abstract_particles import AbstractParticles, Batch
from unle.train.autoregressive_fit import autoregressive_or
from unle.train.base_training import AbstractBaseTraining, FixedBase, FlowTraining
from unle.train.certificate import Certificate, certify
from unle.train.descent import Descended, Descent, descend
from unle.train.divi import DiviChains, fit_divi
from unle.train.energy_fit import EnergyFit, compile_energies, fit_energies
from unle.train.energy_training import EnergyTraining
from unle.train.gaussian_base import GaussianTraining, fit_gaussians
from unle.train.importance_particles import BaseParticles, DataParticles
from unle.train.joint import JointSpace
from unle.train.log_normaliser_fit import LogNormaliserFit, LogNormaliserTraining, fit_log_normaliser
from unle.train.log_z import LogZEstimates, estimate_log_z
from unle.train.noise_fit import fit_noise
from unle.train.online_log_z import OnlineState, OnlineTraining, online_start, online_update
from unle.train.paper_fit import PaperFit, PaperTraining, fit_as_printed, measure
from unle.train.per_pair_particles import PairedChains, PairedSmc
from unle.train.persistent_particles import PersistentChains, WarmSmc
from unle.train.rows import Rows, Splits, held_out_size, make_splits
from unle.train.score_matching import ScoreMatching, fit_score_matching
from unle.train.shared_base import fit_shared_or_whole
from unle.train.stream import Stream
from unle.train.validation import Validation, base_scores, is_better, simplest_as_good, standard_error, validate
from unle.train.validity_fit import ValidityFit, ValidityTraining, fit_validity
from unle.train.warm_starts import Carried, Frame, WarmStart, data_change, pair_particles, warm_start

__all__ = [
    "AbstractBaseTraining",
    "AbstractParticles",
    "BaseParticles",
    "Batch",
    "Carried",
    "Certificate",
    "DataParticles",
    "Descended",
    "Descent",
    "DiviChains",
    "FixedBase",
    "FlowTraining",
    "Frame",
    "GaussianTraining",
    "JointSpace",
    "LogNormaliserFit",
    "LogNormaliserTraining",
    "LogZEstimates",
    "OnlineState",
    "OnlineTraining",
    "PairedChains",
    "PairedSmc",
    "PaperFit",
    "PaperTraining",
    "PersistentChains",
    "Rows",
    "ScoreMatching",
    "Splits",
    "Stream",
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
    "estimate_log_z",
    "fit_as_printed",
    "fit_divi",
    "fit_gaussians",
    "fit_log_normaliser",
    "fit_noise",
    "fit_score_matching",
    "fit_shared_or_whole",
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
    "standard_error",
    "validate",
    "warm_start",
]
