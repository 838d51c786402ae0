r"""Noise that is not Gaussian: mixtures of normals for residuals of fitted bases, where these are clearly not normal.

Residuals are those of rows that were held out from the member that makes them: a base that follows its training rows
too closely would show too little noise there.  A mixture is tried where a test finds residuals that are not normal, and
taken if it beats N(0, I) in cross-validation.  On the host, by expectation maximisation.

Bases were trained as if their noise were Gaussian, so that their means have the error of least squares, sd(v) over
sqrt(n).  Where noise has several narrow modes, or heavy tails, that is much compared with the width of a mode.  So
means are fitted once more under the noise that was found: v is shifted by a linear function of t, which is weighted
least squares inside of expectation maximisation.  This is tried for the bases as they are and for their linear part
alone, and kept if held-out rows become more likely.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import logsumexp, ndtr

from unle.compiling import large_program, on_device
from unle.models import (
    AbstractBase,
    AbstractCorrection,
    Chained,
    ConditionalGaussian,
    FixedMeasure,
    MixtureNoise,
    NoCorrection,
    PolynomialMean,
    Repeated,
    monomials,
    with_noise,
)
from unle.train.rows import Rows, Splits
from unle.train.validation import base_scores, is_better

SIZES = (3, 8)  # components that are tried: a scale mixture, and one that can have several modes
FEWEST_ROWS = 60  # residuals, with fewer of which nothing is tried
MOST_ROWS = 6000
ITERATIONS = 100
ENOUGH = 1e-6  # nats per residual and coordinate: expectation maximisation that gains less is over
MOST_SHIFTED = 100_000  # residuals of a member, of all coordinates, from which its shift is fitted
SHIFT_ITERATIONS = 20
SMALLEST_STEP = 1e-4  # of a coefficient of the shift, in standard deviations of the residuals: then it is found
SHIFTS = 2  # times that shift and noise are fitted in turn
FOLDS = 4
SMALLEST_GAIN = 0.02  # nats per coordinate: Laplace noise gains .07; a fit that is a little off somewhere gains less
LARGEST_GAIN_ASKED = 0.1  # nats in all: in long data a few coordinates may have tails
SMALLEST_SCALE = 0.03  # standard deviation of a component, in those of all residuals between quartiles
LARGEST_A2 = 1.5  # of Anderson and Darling; a normal sample exceeds it once in a thousand times
SPREAD_TAIL = 1.5  # a component of the size of the largest residual times this, with the weight of one residual
LIGHTER = 4.0  # standard errors by which the fourth moment of light tails is below that of a normal
RIDGE = 1e-3  # prior precision of the coefficients of a shift


class Noisy(NamedTuple):
    """Bases with noise that is not Gaussian, and its cross-validated gain over N(0, I) for every held-out row."""

    bases: AbstractBase
    gain: Float[np.ndarray, "member held_out"]
    noise: MixtureNoise  # that all members share

    @property
    def size(self) -> int:
        """Number of components of the noise."""
        return _size(self.noise)


def fit_noise(bases: AbstractBase, rows: Rows) -> Noisy | None:
    """Return the members' bases, stacked, with the noise of their held-out residuals; None if that is Gaussian."""
    if isinstance(bases, FixedMeasure):
        return None
    best = _with_own_noise(bases, rows)
    if best is None or not isinstance(bases, ConditionalGaussian):
        return best
    scores = _held_out_scores(bases, rows)
    starts = [bases]
    if not isinstance(bases.correction, NoCorrection):
        starts.append(eqx.filter_vmap(partial(replace, correction=NoCorrection()))(bases))
    for start in starts:
        moved = _shifted(start, rows, best.noise)
        noisy = _with_own_noise(moved, rows, sizes=(best.size,))
        if noisy is not None:
            noisy = noisy._replace(gain=noisy.gain + _held_out_scores(moved, rows) - scores)
            best = noisy if is_better(noisy.gain, best.gain) else best
    return best


def _with_own_noise(bases: AbstractBase, rows: Rows, *, sizes: Sequence[int] = SIZES) -> Noisy | None:
    one = bases.one if isinstance(bases, Repeated) else bases
    v = held_out_residuals(bases, rows)
    if isinstance(bases, Repeated):
        v = v[..., np.array(bases.blocks)]  # all measurements have the same noise
    fitted = best_noise(v.reshape(-1, v.shape[-1]), sizes=sizes)
    if fitted is None:
        return None
    noise, gain = fitted
    noisy = with_noise(one, noise, members=rows.members)
    noisy = Repeated(noisy, bases.blocks) if isinstance(bases, Repeated) else noisy
    return Noisy(noisy, gain.reshape(rows.members, rows.n_held_out, -1).sum(axis=2), noise)


def ends_early(bases: AbstractBase, rows: Rows) -> bool:
    """Return whether residuals of some coordinate have lighter tails than a normal, as noise with sharp ends has."""
    if isinstance(bases, FixedMeasure):
        return False
    v = held_out_residuals(bases, rows)
    v = v.reshape(-1, v.shape[-1])
    fourth = np.mean(((v - v.mean(axis=0)) / np.maximum(v.std(axis=0), 1e-12)) ** 4, axis=0)
    return bool((fourth - 3 < -LIGHTER * np.sqrt(24 / len(v))).any())  # 24 / n: variance for normal v


def held_out_residuals(bases: AbstractBase, rows: Rows) -> Float[np.ndarray, "member held_out data"]:
    """Return v of the rows that were held out from each member."""
    # Padded rows are computed and left out afterwards: growing data compile once.
    return np.asarray(_residuals(bases, *rows.table), float)[:, : rows.n_held_out]


def _held_out_scores(bases: AbstractBase, rows: Rows) -> Float[np.ndarray, "member held_out"]:
    return np.asarray(base_scores(bases, *rows.table), float)[:, : rows.n_held_out]


def _shifted(bases: ConditionalGaussian, rows: Rows, noise: MixtureNoise) -> ConditionalGaussian:
    """Return bases whose means are fitted once more, under the noise: by a linear function of t for every member."""
    train = np.asarray(rows.splits.train)[:, : max(MOST_SHIFTED // rows.w.shape[1], FEWEST_ROWS)]
    t = np.asarray(rows.t, float)[train]
    on_training = Splits(rows.splits.train, on_device(train, np.int32))
    v, held_out = np.asarray(_residuals(bases, rows.t, rows.w, on_training), float), held_out_residuals(bases, rows)
    t_held_out = np.asarray(rows.t, float)[np.asarray(rows.splits.held_out)[:, : rows.n_held_out]]
    weights, means, scales = (np.asarray(part, float) for part in (noise.log_weights, noise.means, noise.scales))
    mixture = np.exp(weights), means, scales
    coefficients = np.zeros((len(v), t.shape[2] + 1, v.shape[2]))
    for number in range(SHIFTS):
        if number:
            left = np.concatenate([held_out[m] - monomials(t_held_out[m], 1) @ coefficients[m] for m in range(len(v))])
            mixture = _mixture(left[np.random.default_rng(1).permutation(len(left))[:MOST_ROWS]], _size(noise))
        coefficients = np.stack([_shift(*member, mixture) for member in zip(t, v, coefficients, strict=True)])

    def of_member(base, low, high, coefficients):
        shift = PolynomialMean(low, high, coefficients, jnp.eye(v.shape[2]), 1)
        return replace(base, correction=_then(base.correction, shift))

    return eqx.filter_vmap(of_member)(bases, *map(on_device, (t.min(axis=1), t.max(axis=1), coefficients)))


def _then(first: AbstractCorrection, second: AbstractCorrection) -> AbstractCorrection:
    return second if isinstance(first, NoCorrection) else Chained(first, second)


def _shift(
    t: Float[np.ndarray, "n dim"],
    v: Float[np.ndarray, "n data"],
    start: Float[np.ndarray, "monomial data"],
    mixture: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> Float[np.ndarray, "monomial data"]:
    """Return C so that v - C' (1, t) has the noise of the mixture, of the highest likelihood, from a start on."""
    weights, means, scales = mixture
    phi, coefficients = monomials(t, 1), start
    ridge = RIDGE * np.eye(phi.shape[1])
    for _ in range(SHIFT_ITERATIONS):
        z = ((v - phi @ coefficients)[:, :, None] - means) / scales
        logs = np.log(weights / scales) - 0.5 * z**2
        precision = np.exp(logs - logsumexp(logs, axis=2, keepdims=True)) / scales**2
        total = precision.sum(axis=2)
        target = v * total - (precision * means).sum(axis=2)  # times its weight
        gram = np.einsum("np,nk,nq->kpq", phi, total, phi, optimize=True)
        before, coefficients = coefficients, np.linalg.solve(gram + ridge, (phi.T @ target).T[:, :, None])[:, :, 0].T
        if np.max(np.abs(coefficients - before)) < SMALLEST_STEP:
            break
    return coefficients


def _size(noise: MixtureNoise) -> int:
    """Return the number of components, without the defence."""
    return noise.means.shape[1] - 1


def best_noise(
    v: Float[np.ndarray, "n data"], *, sizes: Sequence[int] = SIZES
) -> tuple[MixtureNoise, Float[np.ndarray, " n"]] | None:
    """Return the mixture for residuals v, and its gain over N(0, I) for each; None if N(0, I) is as good."""
    if len(v) < FEWEST_ROWS or not np.isfinite(v).all() or max(map(_anderson_darling, v.T)) < LARGEST_A2:
        return None
    fold = np.random.default_rng(0).permutation(len(v)) % FOLDS
    some = np.random.default_rng(1).permutation(len(v))[:MOST_ROWS]  # of all members, which stand one after the other
    best, gain = None, np.zeros(len(v))
    for size in sizes:
        rows = 0.5 * (np.square(v) + np.log(2 * np.pi)).sum(axis=1)
        for k in range(FOLDS):
            rows[fold == k] += _log_density(_mixture(v[some[fold[some] != k]], size), v[fold == k])
        if is_better(rows, gain):
            best, gain = size, rows
    if best is None or gain.mean() < min(SMALLEST_GAIN * v.shape[1], LARGEST_GAIN_ASKED):
        return None
    weights, means, scales = _mixture(v[some], best)
    return MixtureNoise(on_device(np.log(weights)), on_device(means), on_device(scales)), gain


@large_program
def _residuals(bases: AbstractBase, t, w, splits) -> Float[Array, "member row data"]:
    return eqx.filter_vmap(lambda base, rows: jax.vmap(base.whiten)(t[rows], w[rows]))(bases, splits.held_out)


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
    weights, before = np.full((k, size), 1.0 / size), -np.inf
    for _ in range(ITERATIONS):
        z = (y - means[:, :, None]) / scales[:, :, None]
        logs = np.log(weights)[:, :, None] - 0.5 * z**2 - np.log(scales)[:, :, None]
        total = np.asarray(logsumexp(logs, axis=1, keepdims=True))
        if np.mean(total) < before + ENOUGH:
            break
        before, part = float(np.mean(total)), np.exp(logs - total)
        count = part.sum(axis=2) + 1e-9
        means = (part * y).sum(axis=2) / count
        variance = (part * (y - means[:, :, None]) ** 2).sum(axis=2) / count
        # Components of a few residuals shrink towards the typical width of a component: a single one would have none.
        # (Not towards that of all residuals: it is the distance between two modes, and would fill the gap.)
        typical = np.exp(np.sum(weights * np.log(scales), axis=1, keepdims=True))
        smallest = SMALLEST_SCALE * np.minimum(typical, core)
        scales = np.sqrt(np.maximum((count * variance + 2 * typical**2) / (count + 2), smallest**2))
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
