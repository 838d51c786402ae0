r"""Fit the noise of a base: mixtures of normals for its residuals, if these are clearly not Gaussian.

Residuals are those of rows that were held out from the member that makes them: a base that follows its training rows
too closely would show too little noise there.  A mixture is tried where a test finds residuals that are not normal, and
taken if it beats N(0, I) in cross-validation.  On the host, by expectation maximisation.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float
from scipy.special import logsumexp, ndtr
from scipy.stats import norm

from unle.compiling import large_program
from unle.models import AbstractBase, FixedMeasure, MixtureNoise, Repeated, with_noise
from unle.space.host_device import on_device
from unle.train.rows import Rows
from unle.train.validation import is_better

SIZES = (3, 8)  # components that are tried: a scale mixture, and one that can have several modes
FEWEST_ROWS = 60  # residuals, with fewer of which nothing is tried
MOST_ROWS = 6000
ITERATIONS = 100
FOLDS = 4
SMALLEST_GAIN = 0.02  # nats per coordinate: Laplace noise gains .07; a fit that is a little off somewhere gains less
LARGEST_GAIN_ASKED = 0.1  # nats in all: in long data a few coordinates may have tails
SMALLEST_SCALE = 0.03  # standard deviation of a component, in those of all residuals between quartiles
LARGEST_A2 = 1.5  # of Anderson and Darling; a normal sample exceeds it once in a thousand times
SPREAD_TAIL = 1.5  # a component of the size of the largest residual times this, with the weight of one residual


class Noisy(NamedTuple):
    """Bases with noise that is not Gaussian, and its cross-validated gain over N(0, I) for every held-out row."""

    bases: AbstractBase
    gain: Float[np.ndarray, "member held_out"]


def fit_noise(bases: AbstractBase, rows: Rows) -> Noisy | None:
    """Return the members' bases, stacked, with the noise of their held-out residuals; None if that is Gaussian."""
    if isinstance(bases, FixedMeasure):
        return None
    one = bases.one if isinstance(bases, Repeated) else bases
    held_out = rows.splits.held_out[:, : rows.n_held_out]
    v = np.asarray(_residuals(bases, rows.t, rows.w, held_out), float)
    if isinstance(bases, Repeated):
        v = v[..., np.array(bases.blocks)]  # all measurements have the same noise
    fitted = best_noise(v.reshape(-1, v.shape[-1]))
    if fitted is None:
        return None
    noise, gain = fitted
    noisy = with_noise(one, noise, members=rows.members)
    noisy = Repeated(noisy, bases.blocks) if isinstance(bases, Repeated) else noisy
    return Noisy(noisy, gain.reshape(*held_out.shape, -1).sum(axis=2))


def best_noise(v: Float[np.ndarray, "n data"]) -> tuple[MixtureNoise, Float[np.ndarray, " n"]] | None:
    """Return the mixture for residuals v, and its gain over N(0, I) for each; None if N(0, I) is as good."""
    if len(v) < FEWEST_ROWS or not np.isfinite(v).all() or max(map(_anderson_darling, v.T)) < LARGEST_A2:
        return None
    fold = np.random.default_rng(0).permutation(len(v)) % FOLDS
    some = np.random.default_rng(1).permutation(len(v))[:MOST_ROWS]  # of all members, which stand one after the other
    best, gain = None, np.zeros(len(v))
    for size in SIZES:
        rows = -norm.logpdf(v).sum(axis=1)
        for k in range(FOLDS):
            rows[fold == k] += _log_density(_mixture(v[some[fold[some] != k]], size), v[fold == k])
        if is_better(rows, gain):
            best, gain = size, rows
    if best is None or gain.mean() < min(SMALLEST_GAIN * v.shape[1], LARGEST_GAIN_ASKED):
        return None
    weights, means, scales = _mixture(v[some], best)
    return MixtureNoise(on_device(np.log(weights)), on_device(means), on_device(scales)), gain


@large_program
def _residuals(bases: AbstractBase, t, w, rows) -> Float[Array, "member row data"]:
    return eqx.filter_vmap(lambda base, rows: jax.vmap(base.whiten)(t[rows], w[rows]))(bases, rows)


def _anderson_darling(values: np.ndarray) -> float:
    """Return the statistic A^2 against the standard normal with the sample's own mean and standard deviation."""
    n = len(values)
    z = np.sort((values - values.mean()) / max(values.std(), 1e-12))
    low, high = (np.log(np.clip(p, 1e-300, 1.0)) for p in (ndtr(z), ndtr(-z[::-1])))
    return float(-n - np.mean((2 * np.arange(1, n + 1) - 1) * (low + high)))


def _mixture(v: Float[np.ndarray, "n data"], size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Fit a mixture of normals to every column; return weights, means and scales, each (data, size + 1).

    The last component is a defence, not fitted: as wide as the largest residual and more, with the weight of one
    residual.  No observation is impossible because nothing like it was seen among a few hundred.
    """
    n, k = v.shape
    y = v.T[:, None, :]  # (data, 1, row)
    middle = np.median(v, axis=0)[:, None]
    low, high = np.quantile(v, [0.25, 0.75], axis=0)
    core = np.maximum((high - low) / 1.349, 1e-3)[:, None]  # 1.349: quartiles of N(0, 1) lie so far apart
    if size == SIZES[0]:  # one centre, several widths
        means, scales = np.repeat(middle, size, axis=1), core * np.geomspace(0.5, 4.0, size)
    else:  # centres over the quantiles, and two wide ones
        levels = (np.arange(size - 2) + 0.5) / (size - 2)
        spread = np.quantile(v, levels, axis=0).T
        means = np.concatenate([spread, middle, middle], axis=1)
        scales = core * np.concatenate([np.full(size - 2, 0.5), [2.0, 5.0]])
    weights = np.full((k, size), 1.0 / size)
    for _ in range(ITERATIONS):
        z = (y - means[:, :, None]) / scales[:, :, None]
        logs = np.log(weights)[:, :, None] - 0.5 * z**2 - np.log(scales)[:, :, None]
        part = np.exp(logs - logsumexp(logs, axis=1, keepdims=True))
        count = part.sum(axis=2) + 1e-9
        means = (part * y).sum(axis=2) / count
        variance = (part * (y - means[:, :, None]) ** 2).sum(axis=2) / count
        # Components of a few residuals shrink towards the core's width: a single one would have none.
        scales = np.sqrt(np.maximum((count * variance + 2 * core**2) / (count + 2), (SMALLEST_SCALE * core) ** 2))
        weights = (count + 0.5) / (n + 0.5 * size)
    widest = SPREAD_TAIL * np.maximum(np.abs(v - middle.T).max(axis=0)[:, None], scales.max(axis=1, keepdims=True))
    weights = np.concatenate([weights * n / (n + 1), np.full((k, 1), 1 / (n + 1))], axis=1)
    means = np.concatenate([means, middle], axis=1)
    return weights / weights.sum(axis=1, keepdims=True), means, np.concatenate([scales, widest], axis=1)


def _log_density(fit: tuple[np.ndarray, np.ndarray, np.ndarray], v: np.ndarray) -> np.ndarray:
    weights, means, scales = fit
    z = (v.T[:, None] - means[:, :, None]) / scales[:, :, None]
    logs = np.log(weights / scales)[:, :, None] - 0.5 * z**2 - 0.5 * np.log(2 * np.pi)
    return np.asarray(logsumexp(logs, axis=1)).sum(axis=0)
