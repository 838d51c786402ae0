"""What is inside a likelihood that others are wrapped around.

A sequential run reports GivenValid(GivenValid(Consensus(ensemble), box), failures); a check of its members, or of their
normalisers, needs the ensemble, and has to know how its members were combined.
"""

from typing import Any, NamedTuple

from unle.models import Consensus, Ensemble, GivenValid, Mixture, OverCells, Region, Tempered, TractableLikelihood


class Members(NamedTuple):
    """The members of a likelihood, and how they are combined.

    Attributes:
        ensemble: with every member.
        geometric: whether the likelihood is their geometric mean, rather than their mixture.
        power: to which it is raised; 1 for a posterior.
    """

    ensemble: Ensemble | Mixture
    geometric: bool
    power: float


def members_within(likelihood: Any) -> Members | None:
    """Return the members of a likelihood, None if it has none.

    Example:
        >>> from unle.models import TractableLikelihood
        >>> class Own(TractableLikelihood):
        ...     def prepare(self, x): return x
        ...     def log_likelihood(self, theta, w): return -((w - theta) ** 2).sum()
        >>> members_within(Own()) is None
        True
    """
    if isinstance(likelihood, GivenValid | OverCells):
        return members_within(likelihood.likelihood)
    if isinstance(likelihood, Tempered):
        inner = members_within(likelihood.likelihood)
        return None if inner is None else inner._replace(power=inner.power * float(likelihood.temperature))
    if isinstance(likelihood, Consensus):
        return Members(likelihood.members, geometric=True, power=1.0)
    if isinstance(likelihood, Ensemble | Mixture):
        return Members(likelihood, geometric=False, power=1.0)
    return None


def without_region(likelihood: TractableLikelihood) -> TractableLikelihood:
    """Return the likelihood of data without the box of parameters that a sequential run keeps to.

    The box is part of the prior of what was drawn, and must count once, however many data there are.
    """
    if not isinstance(likelihood, GivenValid):
        return likelihood
    inner = without_region(likelihood.likelihood)
    return inner if isinstance(likelihood.validity, Region) else GivenValid(inner, likelihood.validity)


def without_cells(likelihood: TractableLikelihood) -> TractableLikelihood:
    """Return the density of points, where the likelihood is that of the cells around them."""
    if isinstance(likelihood, OverCells):
        return likelihood.likelihood
    if isinstance(likelihood, GivenValid):
        return GivenValid(without_cells(likelihood.likelihood), likelihood.validity)
    return likelihood
