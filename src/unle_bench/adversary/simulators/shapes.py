"""Odd noise, information that is hard to find, curved posteriors, and an observation of many rows."""

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr

from unle_bench.adversary.exact import ByFactors, ByTempering, OnPlane
from unle_bench.adversary.priors import Box, LogUniforms, cube
from unle_bench.adversary.simulator import Adversary
from unle_bench.adversary.simulators.densities import log_normal_density

RATIOS, LOWER_NOISE = 4, 0.5
SIGN_NOISE = 0.3
QUANTILES = 12
Z_RANGE, BISECTIONS = 8.0, 30
ANGLES, WRAPS = 3, 6
NOISY, MEAN_AT, SPREAD_AT, MEAN_NOISE = 30, 16, 22, 0.3
SWINGS, SWING_NOISE, LAST_TIME = 4, 0.2, 6.0
EACH = 5  # readings of either spread
RING_NOISE = 0.05
CHAIN_NOISE = 0.3
HOURS = np.arange(8) * 1.5
GUMBEL_ROWS = 20
PRODUCT_NOISE, HALF = 0.3, 100.0


def ratio(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n ratios"]:
    """Divide readings of theta_1 by readings of theta_2, which may come close to zero."""
    shape = (len(theta), RATIOS)
    return (theta[:, :1] + rng.normal(size=shape)) / (theta[:, 1:] + LOWER_NOISE * rng.normal(size=shape))


def log_ratio(theta: Float[np.ndarray, "n dim"], x: Float[np.ndarray, " ratios"]) -> Float[np.ndarray, " n"]:
    """Return the log density of a ratio of independent normals: the integral of |y| p(x y) p(y) over y."""
    upper, lower = theta[:, :1], theta[:, 1:] / LOWER_NOISE
    z = x * LOWER_NOISE  # the ratio of unit normals with these means
    a = np.sqrt(1 + z**2)
    b = (upper * z + lower) / a
    c = -0.5 * (upper**2 + lower**2)
    # exp(c) (1 / pi + b exp(b^2 / 2) (2 ndtr(b) - 1) / sqrt(2 pi)) / a^2, of terms that do not overflow
    far = np.log(np.maximum(np.abs(b) * (2 * ndtr(np.abs(b)) - 1), 1e-300) / np.sqrt(2 * np.pi)) + 0.5 * b**2
    return (c + np.logaddexp(-np.log(np.pi), far) - 2 * np.log(a)).sum(axis=1)


def sign_flips(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n dim"]:
    """Multiply exp(theta) by noise, half of the time negative."""
    return rng.choice([-1.0, 1.0], size=theta.shape) * np.exp(theta + SIGN_NOISE * rng.normal(size=theta.shape))


def g_and_k(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n readings"]:
    """Bend normal noise: theta is place, scale, skewness and weight of the tails."""
    return _bent(rng.normal(size=(len(theta), QUANTILES)), theta)[0]


def log_g_and_k(theta: Float[np.ndarray, "n dim"], x: Float[np.ndarray, " readings"]) -> Float[np.ndarray, " n"]:
    """Return the log density of the noise that was bent, with the slope."""
    low, high = np.full((len(theta), len(x)), -Z_RANGE), np.full((len(theta), len(x)), Z_RANGE)
    for _ in range(BISECTIONS):
        z = (low + high) / 2
        below = _bent(z, theta)[0] < x
        low, high = np.where(below, z, low), np.where(below, high, z)
    z = (low + high) / 2
    value, slope = _bent(z, theta)
    possible = np.all(np.abs(z) < Z_RANGE - 1e-6, axis=1)
    return np.where(possible, np.sum(-0.5 * z**2 - np.log(slope), axis=1), -np.inf)


def _bent(z: Float[np.ndarray, "n readings"], theta: Float[np.ndarray, "n dim"]) -> tuple[np.ndarray, np.ndarray]:
    """Return a + b (1 + .8 tanh(g z / 2)) z (1 + z^2)^k and its slope."""
    a, b, g, k = (theta[:, i : i + 1] for i in range(4))
    skew, grown = np.tanh(g * z / 2), (1 + z**2) ** k
    slope = (1 + 0.8 * skew) * (1 + (2 * k + 1) * z**2) / (1 + z**2) + 0.4 * g * z * (1 - skew**2)
    return a + b * (1 + 0.8 * skew) * z * grown, b * grown * slope


def angles(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n angles"]:
    """Read a direction three times, each as an angle between -pi and pi."""
    turned = theta[:, :1] + np.exp(theta[:, 1:]) * rng.normal(size=(len(theta), ANGLES))
    return (turned + np.pi) % (2 * np.pi) - np.pi


def log_angles(theta: Float[np.ndarray, "n dim"], x: Float[np.ndarray, " angles"]) -> Float[np.ndarray, " n"]:
    """Return the log density of a wrapped normal: the sum over full turns."""
    turns = 2 * np.pi * np.arange(-WRAPS, WRAPS + 1)
    residuals = x[None, :, None] - theta[:, :1, None] + turns
    return np.log(np.exp(log_normal_density(residuals, np.exp(theta[:, 1:, None]))).sum(axis=2)).sum(axis=1)


def two_of_thirty(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n noisy"]:
    """Hide a reading of theta_1, and one whose size is exp(theta_2), among 28 of heavy-tailed noise."""
    x = rng.standard_t(3, size=(len(theta), NOISY))
    x[:, MEAN_AT] = theta[:, 0] + MEAN_NOISE * rng.normal(size=len(theta))
    x[:, SPREAD_AT] = np.exp(theta[:, 1]) * rng.normal(size=len(theta))
    return x


def log_two_of_thirty(t: Float[np.ndarray, " n"], i: int, x: Float[np.ndarray, " noisy"]) -> Float[np.ndarray, " n"]:
    """Return the log density of the one reading that theta_i has."""
    if i == 0:
        return log_normal_density(x[MEAN_AT] - t, MEAN_NOISE)
    return log_normal_density(x[SPREAD_AT : SPREAD_AT + 1], np.exp(t))


def random_times(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n pairs"]:
    """Look at a swing four times, at random, and return time and height of each look; theta: size and phase."""
    times = rng.uniform(0.0, LAST_TIME, size=(len(theta), SWINGS))
    heights = theta[:, :1] * np.cos(times + theta[:, 1:]) + SWING_NOISE * rng.normal(size=times.shape)
    return np.stack([times, heights], axis=2).reshape(len(theta), -1)


def log_random_times(theta: Float[np.ndarray, "n dim"], x: Float[np.ndarray, " pairs"]) -> Float[np.ndarray, " n"]:
    """Return the log density of the heights given the times."""
    times, heights = x.reshape(-1, 2).T
    return log_normal_density(heights - theta[:, :1] * np.cos(times + theta[:, 1:]), SWING_NOISE).sum(axis=1)


def spread_only(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n readings"]:
    """Return noise of size exp(theta_1) five times, then of size exp(theta_2)."""
    return np.repeat(np.exp(theta), EACH, axis=1) * rng.normal(size=(len(theta), 2 * EACH))


def log_spread_only(t: Float[np.ndarray, " n"], i: int, x: Float[np.ndarray, " readings"]) -> Float[np.ndarray, " n"]:
    """Return the log density of five readings."""
    return log_normal_density(x[EACH * i : EACH * (i + 1)], np.exp(t)[:, None]).sum(axis=1)


def chain(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n dim"]:
    """Bend every parameter by the square of the one before."""
    bent = theta.copy()
    bent[:, 1:] += theta[:, :-1] ** 2
    return bent + CHAIN_NOISE * rng.normal(size=theta.shape)


def log_chain(theta: Float[np.ndarray, "n dim"], x: Float[np.ndarray, " dim_x"]) -> Float[np.ndarray, " n"]:
    """Return the log density."""
    bent = theta.copy()
    bent[:, 1:] += theta[:, :-1] ** 2
    return log_normal_density(x - bent, CHAIN_NOISE).sum(axis=1)


def growth(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n hours"]:
    """Count a population that grows up to a limit; theta: log limit, rate, log start."""
    return rng.poisson(_expected(theta)).astype(float)


def log_growth(theta: Float[np.ndarray, "n dim"], x: Float[np.ndarray, " hours"]) -> Float[np.ndarray, " n"]:
    """Return the log probability of Poisson counts."""
    expected = _expected(theta)
    return np.sum(x * np.log(expected) - expected, axis=1)


def _expected(theta: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n hours"]:
    limit, rate, start = np.exp(theta[:, :1]), theta[:, 1:2], np.exp(theta[:, 2:])
    return limit / (1 + (limit / start - 1) * np.exp(-rate * HOURS))


def highest(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n one"]:
    """Return one number per row with a long tail upwards: theta_1 + exp(theta_2) times a Gumbel variable."""
    return theta[:, :1] + np.exp(theta[:, 1:]) * rng.gumbel(size=(len(theta), 1))


def log_highest(theta: Float[np.ndarray, "n dim"], x: Float[np.ndarray, " one"]) -> Float[np.ndarray, " n"]:
    """Return the log density of a Gumbel variable."""
    z = (x[0] - theta[:, 0]) * np.exp(-theta[:, 1])
    return -z - np.exp(-z) - theta[:, 1]


def scales(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n two"]:
    """Read a product of a tiny and a large parameter, and the share that the large one fills."""
    product = theta[:, 0] * theta[:, 1] * np.exp(PRODUCT_NOISE * rng.normal(size=len(theta)))
    filled = theta[:, 1] / (theta[:, 1] + HALF) + RING_NOISE * rng.normal(size=len(theta))
    return np.stack([product, filled], axis=1)


def log_scales(theta: Float[np.ndarray, "n dim"], x: Float[np.ndarray, " two"]) -> Float[np.ndarray, " n"]:
    """Return the log density of both."""
    product = log_normal_density(np.log(x[0]) - np.log(theta[:, 0] * theta[:, 1]), PRODUCT_NOISE)
    return product + log_normal_density(x[1] - theta[:, 1] / (theta[:, 1] + HALF), RING_NOISE)


SIMULATORS: tuple[Adversary, ...] = (
    Adversary(
        "ratio",
        "Quotients of two noisy numbers, the lower of which may be close to zero.",
        Box((-3.0, 0.2), (3.0, 3.0)),
        ratio,
        OnPlane(log_ratio),
    ),
    Adversary(
        "sign_flips",
        "Noise that multiplies, and changes sign at random.",
        cube(3, -2.0, 2.0),
        sign_flips,
        ByFactors(lambda t, i, x: log_normal_density(np.log(np.abs(x[i])) - t, SIGN_NOISE)),
    ),
    Adversary(
        "g_and_k",
        "Twelve draws of a distribution known by its quantiles: place, scale, skewness and tails.",
        Box((-3.0, 0.3, 0.0, 0.0), (3.0, 3.0, 4.0, 0.8)),
        g_and_k,
        ByTempering(log_g_and_k),
    ),
    Adversary(
        "angles",
        "Angles, which jump by a full turn.",
        Box((-np.pi, -2.0), (np.pi, 0.7)),
        angles,
        OnPlane(log_angles),
    ),
    Adversary(
        "two_of_thirty",
        "One number that moves and one that widens, among twenty-eight that say nothing.",
        Box((-3.0, -1.5), (3.0, 1.5)),
        two_of_thirty,
        ByFactors(log_two_of_thirty),
    ),
    Adversary(
        "random_times",
        "Times of observation that are data: height alone says little, with its time much.",
        Box((0.3, -np.pi), (2.0, np.pi)),
        random_times,
        OnPlane(log_random_times),
    ),
    Adversary(
        "spread_only",
        "Noise whose size is all that depends on theta.",
        cube(2, -2.0, 2.0),
        spread_only,
        ByFactors(log_spread_only),
    ),
    Adversary(
        "ring",
        "A posterior on a thin ring.",
        cube(2),
        lambda theta, rng: np.hypot(*theta.T)[:, None] + RING_NOISE * rng.normal(size=(len(theta), 1)),
        OnPlane(lambda theta, x: log_normal_density(x[0] - np.hypot(*theta.T), RING_NOISE)),
        edge=(0.1, 0.1),
    ),
    Adversary(
        "chain", "Five parameters, each bent by the one before.", cube(5, -2.0, 2.0), chain, ByTempering(log_chain)
    ),
    Adversary(
        "growth",
        "Counts of a population that grows up to a limit.",
        Box((4.0, 0.3, 0.5), (7.0, 2.0, 3.0)),
        growth,
        ByTempering(log_growth),
    ),
    Adversary(
        "scales",
        "Parameters over four decades each, of very different size.",
        LogUniforms((1e-6, 1.0), (1e-2, 1e4)),
        scales,
        OnPlane(log_scales),
    ),
    Adversary(
        "twenty_rows",
        "An observation of twenty rows, in which errors add up.",
        Box((-3.0, -1.0), (3.0, 1.0)),
        highest,
        OnPlane(log_highest),
        rows=GUMBEL_ROWS,
    ),
)
