"""Models of x given theta: base densities, energies that tilt them, and the likelihoods built from both.

A model works with standardised parameters t and data w, one point at a time; arrays of an ensemble are stacked along a
leading axis.  A likelihood takes raw theta and x: what a posterior is made of.

Read in this order: `mlp` (the one network), `bases` with `corrections`, `mixture_noise`, `flows`, `repeated` and
`autoregressive` (base densities), `views` (what an energy sees), `energy_model` (energies), `likelihood`, `ensembles`,
`conditional_likelihood` and `log_normaliser` (normalisers that depend on theta), `validity` (simulations that fail),
`cell_likelihood` (counts and other atoms), `missing_data` (observations with gaps).

Symbols such as t, w, r and v are explained in docs/glossary.md.
"""

from unle.models.autoregressive import Autoregressive
from unle.models.bases import AbstractBase, ConditionalGaussian, FixedMeasure
from unle.models.cell_likelihood import OverCells, over_cells
from unle.models.conditional_likelihood import (
    ConditionalLikelihood,
    DoublyIntractableLikelihood,
    GeometricPool,
    ReferencedLikelihood,
    geometric_pool,
)
from unle.models.corrections import (
    AbstractCorrection,
    Chained,
    GaussianProcess,
    Kernel,
    NeuralCorrection,
    NoCorrection,
    PolynomialMean,
    monomial_count,
    monomials,
)
from unle.models.energy_model import AbstractEnergy, EnergyModel, MlpEnergy, NoEnergy
from unle.models.ensembles import Consensus, Ensemble, Mixture, geometric_mean, mixture, unstacked
from unle.models.flows import AbstractFlow, Flow, Maf, SplineFlow, check_flows
from unle.models.likelihood import AbstractLikelihood, EnergyLikelihood, Tempered, TractableLikelihood
from unle.models.log_normaliser import LogNormaliser, Normalised
from unle.models.missing_data import MarginalGaussian, with_missing_data
from unle.models.mixture_noise import MixtureNoise, NoisyBase, with_noise
from unle.models.mlp import Mlp
from unle.models.repeated import Repeated
from unle.models.validity import (
    AbstractValidity,
    AlwaysValid,
    DoublyIntractableGivenValid,
    GivenValid,
    Region,
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
    "Autoregressive",
    "Chained",
    "ConditionalGaussian",
    "ConditionalLikelihood",
    "Consensus",
    "DoublyIntractableGivenValid",
    "DoublyIntractableLikelihood",
    "Ensemble",
    "FixedMeasure",
    "Flow",
    "GaussianProcess",
    "GeometricPool",
    "GivenValid",
    "Kernel",
    "LogNormaliser",
    "Maf",
    "MarginalGaussian",
    "Mixture",
    "MixtureNoise",
    "Mlp",
    "MlpEnergy",
    "NeuralCorrection",
    "NoCorrection",
    "NoEnergy",
    "NoisyBase",
    "Normalised",
    "OneView",
    "OverCells",
    "PolynomialMean",
    "ReferencedLikelihood",
    "Region",
    "Repeated",
    "SplineFlow",
    "Tempered",
    "EnergyLikelihood",
    "EnergyModel",
    "TractableLikelihood",
    "TwoViews",
    "ValidPower",
    "ValidityNet",
    "check_flows",
    "geometric_mean",
    "geometric_pool",
    "in_one_view",
    "in_two_views",
    "length_seen",
    "mixture",
    "monomial_count",
    "monomials",
    "over_cells",
    "reach_of",
    "unstacked",
    "with_missing_data",
    "with_noise",
    "with_validity",
]
