"""Models of x given theta: energies, base densities and the likelihoods built from them."""

from unle.models.bases import AbstractBase, ConditionalGaussian, FixedMeasure
from unle.models.energy import AbstractEnergy, MlpEnergy, NoEnergy
from unle.models.likelihood import AbstractLikelihood, Ensemble, TiltedLikelihood, TractableLikelihood
from unle.models.mlp import Mlp
from unle.models.tilted import TiltedModel

__all__ = [
    "AbstractBase",
    "AbstractEnergy",
    "AbstractLikelihood",
    "ConditionalGaussian",
    "Ensemble",
    "FixedMeasure",
    "Mlp",
    "MlpEnergy",
    "NoEnergy",
    "TiltedLikelihood",
    "TiltedModel",
    "TractableLikelihood",
]
