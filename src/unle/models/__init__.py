"""Models of x given theta: energies, base densities and the likelihoods built from them."""

from unle.models.bases import AbstractBase, ConditionalGaussian, FixedMeasure
from unle.models.cells import OverCells, over_cells
from unle.models.conditional import ConditionalLikelihood, DoublyIntractableLikelihood
from unle.models.consensus import Consensus, agreed
from unle.models.correction import AbstractCorrection, Chained, Flex, Straight
from unle.models.energy import AbstractEnergy, MlpEnergy, NoEnergy
from unle.models.flows import AbstractFlow, Flow, Maf, SplineFlow, check_flows
from unle.models.focus import Region, Tempered
from unle.models.gaussian_process import GaussianProcess, Kernel
from unle.models.likelihood import AbstractLikelihood, Ensemble, TiltedLikelihood, TractableLikelihood
from unle.models.log_normaliser import LogNormaliser, Normalised
from unle.models.mixture import Mixture, mixture
from unle.models.mlp import Mlp
from unle.models.noise import MixtureNoise, NoisyBase, with_noise
from unle.models.polynomial import Bend
from unle.models.pool import GeometricPool, geometric_pool
from unle.models.referenced import ReferencedLikelihood
from unle.models.repeated import Repeated
from unle.models.tilted import TiltedModel
from unle.models.validity import (
    AbstractValidity,
    AlwaysValid,
    GivenValid,
    ValidityNet,
    ValidPower,
    with_validity,
)
from unle.models.views import OneView, TwoViews, in_one_view, in_two_views, length_seen, reach_of

__all__ = [
    "AbstractBase",
    "AbstractCorrection",
    "AbstractEnergy",
    "AbstractFlow",
    "AbstractLikelihood",
    "AbstractValidity",
    "AlwaysValid",
    "Bend",
    "Chained",
    "ConditionalGaussian",
    "ConditionalLikelihood",
    "Consensus",
    "DoublyIntractableLikelihood",
    "Ensemble",
    "FixedMeasure",
    "GaussianProcess",
    "Kernel",
    "Flex",
    "Flow",
    "GeometricPool",
    "GivenValid",
    "LogNormaliser",
    "Maf",
    "Mixture",
    "Mlp",
    "MixtureNoise",
    "MlpEnergy",
    "NoEnergy",
    "OverCells",
    "over_cells",
    "NoisyBase",
    "Normalised",
    "OneView",
    "ReferencedLikelihood",
    "Region",
    "Repeated",
    "Straight",
    "SplineFlow",
    "Tempered",
    "TiltedLikelihood",
    "TiltedModel",
    "TractableLikelihood",
    "TwoViews",
    "ValidPower",
    "ValidityNet",
    "agreed",
    "check_flows",
    "geometric_pool",
    "in_one_view",
    "in_two_views",
    "length_seen",
    "mixture",
    "reach_of",
    "with_noise",
    "with_validity",
]
