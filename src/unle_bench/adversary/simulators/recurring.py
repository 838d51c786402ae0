"""Values that recur: few, rare, far apart or on no lattice."""

import numpy as np
from jaxtyping import Float
from scipy.special import gammaln, ndtr

from unle_bench.adversary.exact import ByFactors, OnPlane
from unle_bench.adversary.priors import Box, cube
from unle_bench.adversary.simulator import Adversary
from unle_bench.adversary.simulators.densities import log_normal_density, log_student_density

WELLS, MOST_DOUBLINGS = 4, 9
CUTS = np.array([-1.8, -0.6, 0.6, 1.8])  # between five answers
OFFSETS = np.array([-1.0, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0, 1.5])  # of the questions
CEILING, CEILING_NOISE = 2.8, 0.4
STUCK_AT, STUCK_SCALE, STUCK_READINGS = 1.7, 0.4, 3
DAYS = 5
MINUTES = 60


def titres(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n wells"]:
    """Return 1, 2, 4, ... or 512: the last dilution at which something is seen, in four wells."""
    z = theta[:, :1] + np.exp(theta[:, 1:]) * rng.normal(size=(len(theta), WELLS))
    return 2.0 ** np.clip(np.round(z), 0, MOST_DOUBLINGS)


def log_titres(theta: Float[np.ndarray, "n dim"], x: Float[np.ndarray, " wells"]) -> Float[np.ndarray, " n"]:
    """Return the log probability of every dilution."""
    k = np.log2(x)
    below, above = np.where(k == 0, -np.inf, k - 0.5), np.where(k == MOST_DOUBLINGS, np.inf, k + 0.5)
    return _log_between(theta[:, :1], np.exp(theta[:, 1:]), below, above).sum(axis=1)


def log_counts(t: Float[np.ndarray, " n"], i: int, x: Float[np.ndarray, " dim_x"]) -> Float[np.ndarray, " n"]:
    """Return the log probability of a Poisson count whose log(1 + count) is given."""
    return np.expm1(x[i]) * t - np.exp(t)


def ratings(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n questions"]:
    """Answer eight questions with 1 to 5."""
    z = theta[:, :1] + OFFSETS + np.exp(theta[:, 1:]) * rng.normal(size=(len(theta), len(OFFSETS)))
    return 1.0 + np.searchsorted(CUTS, z)


def log_ratings(theta: Float[np.ndarray, "n dim"], x: Float[np.ndarray, " questions"]) -> Float[np.ndarray, " n"]:
    """Return the log probability of every answer."""
    ends = np.concatenate([[-np.inf], CUTS, [np.inf]])
    k = x.astype(int)
    return _log_between(theta[:, :1] + OFFSETS, np.exp(theta[:, 1:]), ends[k - 1], ends[k]).sum(axis=1)


def saturated(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n dim"]:
    """Show no more than the ceiling."""
    return np.minimum(theta + CEILING_NOISE * rng.normal(size=theta.shape), CEILING)


def log_saturated(t: Float[np.ndarray, " n"], i: int, x: Float[np.ndarray, " dim_x"]) -> Float[np.ndarray, " n"]:
    """Return the probability of the ceiling, or the density below."""
    if x[i] >= np.float32(CEILING):
        return np.log(ndtr((t - CEILING) / CEILING_NOISE))
    return log_normal_density(x[i] - t, CEILING_NOISE) - 0.5 * np.log(2 * np.pi)


def stuck(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n readings"]:
    """Read theta_1 with heavy-tailed noise; a reading is stuck at one value with probability theta_2."""
    shape = (len(theta), STUCK_READINGS)
    x = theta[:, :1] + STUCK_SCALE * rng.standard_t(2, size=shape)
    return np.where(rng.uniform(size=shape) < theta[:, 1:], STUCK_AT, x)


def log_stuck(theta: Float[np.ndarray, "n dim"], x: Float[np.ndarray, " readings"]) -> Float[np.ndarray, " n"]:
    """Return the log probability of being stuck, or the log density of what is not."""
    moves = np.log1p(-theta[:, 1:]) + log_student_density(x - theta[:, :1], STUCK_SCALE, 2.0)
    return np.where(np.abs(x - STUCK_AT) < 1e-6, np.log(theta[:, 1:]), moves).sum(axis=1)


def bursts(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n days"]:
    """Count on five days, with a mean exp(theta_1) and a spread that may be many times that."""
    size = np.exp(theta[:, 1:])
    rate = np.exp(theta[:, :1]) * rng.gamma(np.tile(size, (1, DAYS))) / size
    return rng.poisson(rate).astype(float)


def log_bursts(theta: Float[np.ndarray, "n dim"], x: Float[np.ndarray, " days"]) -> Float[np.ndarray, " n"]:
    """Return the log probability of negative binomial counts."""
    size, log_mean = np.exp(theta[:, 1:]), theta[:, :1]
    log_sum = np.logaddexp(log_mean, theta[:, 1:])  # of mean and size
    counted = gammaln(x + size) - gammaln(size) + x * (log_mean - log_sum) + size * (theta[:, 1:] - log_sum)
    return counted.sum(axis=1)


def switching(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n minutes"]:
    """Return whether a channel is open, for sixty minutes; theta: the chances of opening and of closing in one."""
    opens, closes = theta.T
    state = np.empty((len(theta), MINUTES))
    state[:, 0] = rng.uniform(size=len(theta)) < opens / (opens + closes)
    for minute in range(1, MINUTES):
        open_before = state[:, minute - 1] == 1
        state[:, minute] = rng.uniform(size=len(theta)) < np.where(open_before, 1 - closes, opens)
    return state


def log_switching(theta: Float[np.ndarray, "n dim"], x: Float[np.ndarray, " minutes"]) -> Float[np.ndarray, " n"]:
    """Return the log probability of all changes."""
    opens, closes = theta.T
    before, after = x[:-1] == 1, x[1:] == 1
    first = np.log(np.where(x[0] == 1, opens, closes) / (opens + closes))
    opened, shut = np.sum(~before & after), np.sum(~before & ~after)
    closed, stayed = np.sum(before & ~after), np.sum(before & after)
    return (
        first + opened * np.log(opens) + shut * np.log1p(-opens) + closed * np.log(closes) + stayed * np.log1p(-closes)
    )


def _log_between(mean: np.ndarray, sd: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return the log probability that a normal variable lies between two numbers."""
    above, below = (high - mean) / sd, (low - mean) / sd
    flip = below > 0  # differences of small tail probabilities, not of numbers close to one
    return np.log(np.where(flip, ndtr(-below) - ndtr(-above), ndtr(above) - ndtr(below)))


SIMULATORS: tuple[Adversary, ...] = (
    Adversary(
        "titres",
        "Dilutions by two: values that double, each far from the next.",
        Box((0.0, -1.0), (9.0, 0.7)),
        titres,
        OnPlane(log_titres),
    ),
    Adversary(
        "log_counts",
        "Logarithms of small counts: values that recur, on no lattice.",
        cube(2),
        lambda theta, rng: np.log1p(rng.poisson(np.exp(theta))),
        ByFactors(log_counts),
    ),
    Adversary("ratings", "Answers from 1 to 5.", Box((-3.0, -1.0), (3.0, 1.0)), ratings, OnPlane(log_ratings)),
    Adversary(
        "saturated",
        "A ceiling that one reading in thirty reaches, and the observation too.",
        cube(2),
        saturated,
        ByFactors(log_saturated),
        given={"typical": (CEILING, 0.5)},
        edge=(2.9, -1.0),
    ),
    Adversary(
        "stuck",
        "A value in the middle of heavy-tailed data at which readings are stuck.",
        Box((-3.0, 0.02), (3.0, 0.6)),
        stuck,
        OnPlane(log_stuck),
        given={"typical": (STUCK_AT, 0.4, STUCK_AT)},
    ),
    Adversary(
        "bursts",
        "Counts with a few that are huge.",
        Box((0.0, -1.5), (5.0, 1.5)),
        bursts,
        OnPlane(log_bursts),
    ),
    Adversary(
        "switching",
        "Sixty times yes or no; what is informative is how often that changes.",
        Box((0.02, 0.02), (0.98, 0.98)),
        switching,
        OnPlane(log_switching),
    ),
)
