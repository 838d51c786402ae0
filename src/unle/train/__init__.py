"""Training: fit bases and energies to simulations."""

from unle.train.base_training import AbstractBaseTraining, FixedBase
from unle.train.gaussian import GaussianTraining, fit_gaussians
from unle.train.joint import JointSpace
from unle.train.paired import PairedChains, PairedSmc
from unle.train.particles import AbstractParticles, BaseParticles, Batch, PersistentChains, WarmSmc
from unle.train.splits import Splits, make_splits
from unle.train.tilted import TiltedFit, TiltedTraining, fit_tilted
from unle.train.validation import Validation, validate

__all__ = [
    "AbstractBaseTraining",
    "AbstractParticles",
    "BaseParticles",
    "Batch",
    "FixedBase",
    "GaussianTraining",
    "JointSpace",
    "PairedChains",
    "PairedSmc",
    "PersistentChains",
    "Splits",
    "TiltedFit",
    "TiltedTraining",
    "Validation",
    "WarmSmc",
    "fit_gaussians",
    "fit_tilted",
    "make_splits",
    "validate",
]
