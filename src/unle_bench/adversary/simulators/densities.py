"""Log densities that several simulators share, without their constants in theta."""

import numpy as np
from jaxtyping import Float
from scipy.special import expit

Array = Float[np.ndarray, "..."]


def log_normal_density(residual: Array, sd: Array | float) -> Array:
    """Return that of a normal with mean zero."""
    return -0.5 * (residual / sd) ** 2 - np.log(sd)


def log_student_density(residual: Array, scale: float, degrees: float) -> Array:
    """Return that of a Student-t; one degree of freedom is a Cauchy."""
    return -(degrees + 1) / 2 * np.log1p((residual / scale) ** 2 / degrees)


def log_mixture(log_first: Array, log_second: Array, weight: Array | float) -> Array:
    """Return the log of weight times the first density plus (1 - weight) times the second."""
    return np.logaddexp(np.log(weight) + log_first, np.log1p(-np.asarray(weight)) + log_second)


def sigmoid(value: Array) -> Array:
    """Return 1 / (1 + exp(-value))."""
    return expit(value)
