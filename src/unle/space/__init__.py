"""What theta and x are: the prior, its smooth coordinates, and the standardised spaces that networks see.

In: a user's distributions, and simulations.  Out: a `Prior`, a `ThetaSpace` and an `XSpace`.

Read `prior` first, with `prior_formats` (scipy, torch, JSON), `blocks` (which distributions are allowed), `bijections`
(coordinates on all of R^d) and `conditional_prior` (some parameters fixed).  Then `scaling` (the spaces) and
`fit_spaces` (how they are fitted), with `marginals` (transforms of single coordinates), `data_kinds` (counts and atoms,
repeated measurements) and `screening` (coordinates that say nothing).  `host_device` moves arrays and random keys to
the device.

Symbols such as u, t and w are explained in docs/glossary.md.
"""

from unle.space.conditional_prior import ConditionalPrior, condition_prior
from unle.space.data_kinds import Blocks, Cells, repeated_blocks
from unle.space.fit_spaces import affine_change, fit_theta_space, fit_x_space, restandardise_theta, restandardise_x
from unle.space.marginals import Marginals, choose_marginals
from unle.space.prior import Prior, check_prior, unconstrained_draws
from unle.space.scaling import Standardiser, ThetaSpace, XSpace
from unle.space.screening import informative_coordinates

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
    "check_prior",
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
