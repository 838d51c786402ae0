"""Models of x given theta: base densities, energies that tilt them, and the likelihoods built from both.

A model works with standardised parameters t and data w, one point at a time; arrays of an ensemble are stacked along a
leading axis.  A likelihood takes raw theta and x: what a posterior is made of.

Read in this order: `mlp` (the one network), `bases` with `corrections`, `flows` and `autoregressive` (base densities;
noise, repeated measurements, what an energy sees), `likelihood` (energies, and what they make of a base),
`conditional_likelihood` (normalisers that depend on theta), `theta_factors` (learned normalisers, simulations that
fail), `missing_data` (observations with gaps), `summaries` (of long data).

Symbols such as t, w, r and v are explained in docs/glossary.md.
"""

from unle.models.autoregressive import Autoregressive
from unle.models.bases import (
    AbstractBase,
    ConditionalGaussian,
    FixedMeasure,
    MixtureNoise,
    NoisyBase,
    OneView,
    Repeated,
    TwoViews,
    in_one_view,
    in_two_views,
    length_seen,
    reach_of,
    with_noise,
)
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
from unle.models.flows import AbstractFlow, Flow, Maf, SplineFlow, check_flows
from unle.models.likelihood import (
    AbstractEnergy,
    AbstractLikelihood,
    Consensus,
    EnergyLikelihood,
    EnergyModel,
    Ensemble,
    Mixture,
    MlpEnergy,
    NoEnergy,
    OverCells,
    Tempered,
    TractableLikelihood,
    geometric_mean,
    in_the_middle,
    mixture,
    over_cells,
    unstacked,
)
from unle.models.missing_data import MarginalGaussian, with_missing_data
from unle.models.mlp import Mlp
from unle.models.summaries import AbstractSummary, Coordinates, Features, GivenSummary, NetworkSummary, SummaryBody
from unle.models.theta_factors import (
    AbstractValidity,
    AlwaysValid,
    DoublyIntractableGivenValid,
    GivenValid,
    LogNormaliser,
    Normalised,
    Region,
    ValidityNet,
    ValidPower,
    with_validity,
)

__all__ = [
    "AbstractBase",
    "AbstractCorrection",
    "AbstractEnergy",
    "AbstractFlow",
    "AbstractLikelihood",
    "AbstractSummary",
    "AbstractValidity",
    "AlwaysValid",
    "Autoregressive",
    "Chained",
    "ConditionalGaussian",
    "ConditionalLikelihood",
    "Consensus",
    "Coordinates",
    "DoublyIntractableGivenValid",
    "DoublyIntractableLikelihood",
    "Ensemble",
    "Features",
    "FixedMeasure",
    "Flow",
    "GaussianProcess",
    "GeometricPool",
    "GivenSummary",
    "GivenValid",
    "Kernel",
    "LogNormaliser",
    "Maf",
    "MarginalGaussian",
    "Mixture",
    "MixtureNoise",
    "Mlp",
    "MlpEnergy",
    "NetworkSummary",
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
    "SummaryBody",
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
    "in_the_middle",
    "over_cells",
    "reach_of",
    "unstacked",
    "with_missing_data",
    "with_noise",
    "with_validity",
]
