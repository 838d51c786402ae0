"""What theta and x are: the prior, its smooth coordinates, and the standardised space of the data."""

from unle.space.cells import Cells
from unle.space.marginals import Marginals, choose_marginals
from unle.space.prior import Prior, unconstrained_draws
from unle.space.repetition import Blocks, repeated_blocks
from unle.space.restandardise import affine_change, restandardise_theta, restandardise_x
from unle.space.scaling import Standardiser, ThetaSpace, XSpace, fit_theta_space, fit_x_space

__all__ = [
    "affine_change",
    "Blocks",
    "Cells",
    "Marginals",
    "Prior",
    "Standardiser",
    "ThetaSpace",
    "XSpace",
    "choose_marginals",
    "fit_theta_space",
    "fit_x_space",
    "repeated_blocks",
    "restandardise_theta",
    "restandardise_x",
    "unconstrained_draws",
]
