"""What theta and x are: the prior, its smooth coordinates, and the standardised spaces that networks see.

In: a user's distributions, and simulations.  Out: a `Prior`, a `ThetaSpace` and an `XSpace`.

Read `prior` first, with `prior_formats` (which distributions are allowed; scipy, torch, JSON), `bijections`
(coordinates on all of R^d) and `conditional_prior` (some parameters fixed).  Then `standardise` (the spaces and how
they are fitted), with `marginals` (single coordinates: transforms, counts and atoms) and `dependence` (repeated
measurements, coordinates that say nothing).

Symbols such as u, t and w are explained in docs/glossary.md.
"""

from unle.space.conditional_prior import ConditionalPrior, condition_prior
from unle.space.dependence import Blocks, informative_coordinates, repeated_blocks
from unle.space.marginals import Cells, Marginals, choose_marginals
from unle.space.prior import Prior, check_prior, checked_names, unconstrained_draws
from unle.space.standardise import (
    Standardiser,
    ThetaSpace,
    XSpace,
    add_transforms,
    affine_change,
    fit_theta_space,
    fit_x_space,
    restandardise_theta,
    restandardise_x,
)

__all__ = [
    "Blocks",
    "Cells",
    "ConditionalPrior",
    "Marginals",
    "Prior",
    "Standardiser",
    "ThetaSpace",
    "XSpace",
    "affine_change",
    "add_transforms",
    "check_prior",
    "checked_names",
    "choose_marginals",
    "condition_prior",
    "fit_theta_space",
    "fit_x_space",
    "informative_coordinates",
    "repeated_blocks",
    "restandardise_theta",
    "restandardise_x",
    "unconstrained_draws",
]
