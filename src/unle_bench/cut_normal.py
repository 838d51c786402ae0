"""Normals cut to an interval, exact far into the tails."""

import numpy as np
from scipy.special import log_ndtr, ndtri_exp


def _flipped(mean, sd, wall):
    """Return standardised ends (low, high), mirrored so that the interval never lies in the right tail."""
    low, high = (-wall - mean) / sd, (wall - mean) / sd
    mirror = low + high > 0
    return np.where(mirror, -high, low), np.where(mirror, -low, high), np.where(mirror, -1.0, 1.0)


def log_inside(mean: np.ndarray | float, sd: np.ndarray | float, *, wall: float) -> np.ndarray:
    """Return the log probability that N(mean, sd^2) falls in [-wall, wall]; arguments broadcast."""
    low, high, _ = _flipped(mean, sd, wall)
    return log_ndtr(high) + np.log1p(-np.exp(log_ndtr(low) - log_ndtr(high)))


def draw_inside(mean: np.ndarray, sd: np.ndarray | float, rng: np.random.Generator, *, wall: float) -> np.ndarray:
    """Draw once per entry of `mean` from N(mean, sd^2) given that the draw lies in [-wall, wall].

    Inverts the distribution function, in logs: v = Phi^-1(Phi(low) + t (Phi(high) - Phi(low))), t uniform.
    """
    low, high, sign = _flipped(mean, sd, wall)
    t = rng.uniform(size=np.shape(mean))
    log_probability = log_ndtr(high) + np.log(t + (1 - t) * np.exp(log_ndtr(low) - log_ndtr(high)))
    return np.clip(mean + sd * sign * ndtri_exp(log_probability), -wall, wall)
