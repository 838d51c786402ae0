"""Training: fit bases and energies to simulations."""

from unle.train.base_training import AbstractBaseTraining, FixedBase
from unle.train.carry import Carried, Frame, WarmStart, places, warm_start
from unle.train.certificate import Certificate, certify
from unle.train.descent import Descended, Descent, descend
from unle.train.flow import FlowTraining
from unle.train.gaussian import GaussianTraining, fit_gaussians
from unle.train.joint import JointSpace
from unle.train.log_normaliser import LogNormaliserFit, LogNormaliserTraining, fit_log_normaliser
from unle.train.log_z import LogZEstimates, estimate_log_z
from unle.train.moving import PersistentChains, WarmSmc
from unle.train.noise import fit_noise
from unle.train.online_log_z import OnlineState, OnlineTraining, online_start, online_update
from unle.train.paired import PairedChains, PairedSmc
from unle.train.particles import AbstractParticles, Batch
from unle.train.pools import BaseParticles, DataParticles
from unle.train.score_matching import ScoreMatching, fit_score_matching
from unle.train.splits import Splits, held_out_size, make_splits, pad
from unle.train.stream import Stream
from unle.train.tied import fit_tied_or_whole
from unle.train.tilted import TiltedFit, compile_tilted, fit_tilted
from unle.train.tilted_training import TiltedTraining
from unle.train.validation import Validation, base_scores, validate
from unle.train.validity import ValidityFit, ValidityTraining, fit_validity

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
    "FixedBase",
    "FlowTraining",
    "Frame",
    "GaussianTraining",
    "JointSpace",
    "PairedChains",
    "PairedSmc",
    "LogNormaliserFit",
    "LogNormaliserTraining",
    "LogZEstimates",
    "OnlineState",
    "OnlineTraining",
    "PersistentChains",
    "ScoreMatching",
    "Splits",
    "Stream",
    "TiltedFit",
    "TiltedTraining",
    "Validation",
    "ValidityFit",
    "ValidityTraining",
    "WarmSmc",
    "WarmStart",
    "estimate_log_z",
    "descend",
    "base_scores",
    "certify",
    "compile_tilted",
    "fit_gaussians",
    "fit_log_normaliser",
    "fit_noise",
    "fit_score_matching",
    "fit_tied_or_whole",
    "fit_tilted",
    "fit_validity",
    "held_out_size",
    "make_splits",
    "pad",
    "places",
    "online_start",
    "online_update",
    "validate",
    "warm_start",
]
