r"""What the residuals of fitted bases show: noise that is not Gaussian, and repeated measurements.

**Noise.**  Mixtures of normals are fitted to residuals that are clearly not Gaussian.  Residuals are those of rows that
were held out from the member that makes them: a base that follows its training rows too closely would show too little
noise there.  A mixture is tried where a test finds residuals that are not normal, and taken if it beats N(0, I) in
cross-validation.  On the host, by expectation maximisation.

**Repeated measurements.**  One base serves all of them, if they are repeated.  Blocks of x that look alike
(`unle.space.data_kinds`) need not be so in every respect, nor independent given theta: those of a time series are not,
nor are measurements that share noise, and their product would be too sure of theta.  Two things are asked of a base
that was fitted to single measurements.  Its residuals have to look repeated, and simulations that were held out have
to be more likely under the product than under a base of the whole, fitted too.

v_b are the residuals of k measurements, standard normal if the base is right, and phi(t) orthonormal functions of the
parameters (one, and linear).

* Alike: v_b minus their mean over b is uncorrelated with phi(t).  Every sum is squared and divided by its own variance,
  and all of them are added up: small differences count that go through many measurements, as along a smooth curve.
* Independent: products v_b v_c of different measurements, b != c, of the same or of two coordinates, are uncorrelated
  with phi(t).  With c the mean of such products of one coordinate, the variance of a sum of k residuals is
  1 + (k - 1) c times what independent ones have.  And no pair of them is correlated, as neighbours in time are: the
  squared correlations of all pairs are added up.

What cannot be seen here: measurements that share nothing but the size of their noise.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.special import chdtrc, logsumexp, ndtr, ndtri

from unle.compiling import large_program
from unle.models import AbstractBase, FixedMeasure, MixtureNoise, Repeated, with_noise
from unle.space.data_kinds import Blocks
from unle.space.host_device import on_device
from unle.train.rows import Rows, Splits
from unle.train.validation import base_scores, is_better

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
MOST_MEASUREMENTS = 50_000  # of single measurements, unless there are more simulations
EXAMINED_ROWS = 5000  # simulations whose residuals are looked at
LEVEL = 1e-4  # probability of taking repeated measurements for something else, by each question, if the base is right
INFLATION = 0.05  # of the variance of a sum that is put up with
MOST_PRODUCTS = 20  # coordinates of which all products are taken; of more, squares alone

FitBases = Callable[[PRNGKeyArray, Rows], AbstractBase]


class Noisy(NamedTuple):
    """Bases with noise that is not Gaussian, and its cross-validated gain over N(0, I) for every held-out row."""

    bases: AbstractBase
    gain: Float[np.ndarray, "member held_out"]


def fit_noise(bases: AbstractBase, rows: Rows) -> Noisy | None:
    """Return the members' bases, stacked, with the noise of their held-out residuals; None if that is Gaussian."""
    if isinstance(bases, FixedMeasure):
        return None
    one = bases.one if isinstance(bases, Repeated) else bases
    # Padded rows are computed and left out afterwards: growing data compile once.
    v = np.asarray(_residuals(bases, *rows.table), float)[:, : rows.n_held_out]
    if isinstance(bases, Repeated):
        v = v[..., np.array(bases.blocks)]  # all measurements have the same noise
    fitted = best_noise(v.reshape(-1, v.shape[-1]))
    if fitted is None:
        return None
    noise, gain = fitted
    noisy = with_noise(one, noise, members=rows.members)
    noisy = Repeated(noisy, bases.blocks) if isinstance(bases, Repeated) else noisy
    return Noisy(noisy, gain.reshape(rows.members, rows.n_held_out, -1).sum(axis=2))


def best_noise(v: Float[np.ndarray, "n data"]) -> tuple[MixtureNoise, Float[np.ndarray, " n"]] | None:
    """Return the mixture for residuals v, and its gain over N(0, I) for each; None if N(0, I) is as good."""
    if len(v) < FEWEST_ROWS or not np.isfinite(v).all() or max(map(_anderson_darling, v.T)) < LARGEST_A2:
        return None
    fold = np.random.default_rng(0).permutation(len(v)) % FOLDS
    some = np.random.default_rng(1).permutation(len(v))[:MOST_ROWS]  # of all members, which stand one after the other
    best, gain = None, np.zeros(len(v))
    for size in SIZES:
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


def fit_shared_or_whole(key: PRNGKeyArray, fit: FitBases, rows: Rows, *, cuts: Sequence[Blocks]) -> AbstractBase:
    """FitBases bases of single measurements and of whole w, and return the better ones, stacked over members.

    Args:
        key: randomness of the fits.
        fit: returns the members' bases of given rows; the width of w is that of what it is given.
        rows: standardised simulations, alike blocks standardised alike.
        cuts: ways to cut w into measurements; the first whose residuals look like those of repeated measurements
            is compared with the whole.
    """
    key_whole, key_shared = jr.split(key)
    for number, blocks in enumerate(cuts):
        key_cut = jr.fold_in(key_shared, number)
        shared = Repeated(fit(key_cut, single_measurements(rows, blocks)), blocks)
        if _is_repeated(shared, rows):
            whole = fit(key_whole, rows)
            scores = (np.asarray(base_scores(bases, *rows.table), float) for bases in (shared, whole))
            return shared if is_better(*scores) else whole
    return fit(key_whole, rows)


def single_measurements(rows: Rows, blocks: Blocks) -> Rows:
    """Return measurements as rows of their own; those of one simulation stay on the same side of a split.

    All of them, unless there are more than memory and time are meant for: then some of every simulation, at least one.
    """
    (t, w, splits), n, k = rows.table, len(rows.w), len(blocks)
    each = min(k, max(1, MOST_MEASUREMENTS // n))
    chosen = np.sort(np.argsort(np.random.default_rng(n).random((n, k)), axis=1)[:, :each], axis=1)
    parts = np.asarray(w)[np.arange(n)[:, None, None], np.array(blocks)[chosen]].reshape(n * each, -1)

    def of_measurements(simulations):
        theirs = np.asarray(simulations)[..., None] * each + np.arange(each)
        return on_device(theirs.reshape(len(simulations), -1), np.int32)

    repeated = np.repeat(np.asarray(t), each, axis=0)
    return Rows(on_device(repeated, t.dtype), on_device(parts, w.dtype), Splits(*map(of_measurements, splits)))


def _is_repeated(shared: Repeated, rows: Rows) -> bool:
    """Look at residuals of rows that the first member was trained on, and of rows held out from the members.

    Members share most of the rows that they are trained on, so one of them says what there is to say.
    """
    train = np.asarray(rows.splits.train)[:1, :EXAMINED_ROWS]
    held_out = np.asarray(rows.splits.held_out)[:, :EXAMINED_ROWS]
    first = jax.tree.map(lambda leaf: leaf[:1] if eqx.is_array(leaf) else leaf, shared)
    table = np.array(shared.blocks)

    def residuals(bases, chosen):
        v = np.asarray(_whitened(bases, rows.t, rows.w, jnp.asarray(chosen)), float)[..., table]
        return v.reshape(-1, *table.shape), np.asarray(rows.t, float)[chosen.ravel()]

    return look_repeated(*residuals(first, train), trained=True) and look_repeated(*residuals(shared, held_out))


@eqx.filter_jit
def _whitened(bases: AbstractBase, t, w, rows) -> Float[Array, "member row data"]:
    def of_member(base, rows):
        return jax.lax.map(lambda row: base.whiten(t[row], w[row]), rows, batch_size=500)

    return eqx.filter_vmap(of_member)(bases, rows)


def look_repeated(
    v: Float[np.ndarray, "n block dim"], t: Float[np.ndarray, "n parameter"], *, trained: bool = False
) -> bool:
    """Return whether residuals are alike and independent as far as can be seen.

    Where the base was trained on these rows, a network that follows noise makes the correlation of different
    measurements negative, and that is no reason to refuse.
    """
    phi = _orthonormal(t)
    if not np.isfinite(v).all() or not _are_alike(v, phi) or not _are_independent(v, phi, trained=trained):
        return False
    return _no_pair_is_correlated(v, trained=trained)


def _are_alike(v: np.ndarray, phi: np.ndarray) -> bool:
    n, k, d = v.shape
    off = (v - v.mean(axis=1, keepdims=True)).reshape(n, k * d)
    squares = np.square(off.T @ phi) / np.maximum(np.square(off).T @ np.square(phi), 1e-12)
    # Before squaring those of the k measurements add up to zero: their sum is k / (k - 1) times chi-squared with k - 1.
    return bool(chdtrc((k - 1) * d * phi.shape[1], squares.sum() * (k - 1) / k) > LEVEL)


def _are_independent(v: np.ndarray, phi: np.ndarray, *, trained: bool) -> bool:
    n, k, d = v.shape
    i, j = np.triu_indices(d) if d <= MOST_PRODUCTS else np.diag_indices(d)
    total = v.sum(axis=1)
    products = total[:, i] * total[:, j] - sum(v[:, b][:, i] * v[:, b][:, j] for b in range(k))
    products = products / (k * (k - 1))
    means = products.T @ phi / n
    errors = np.sqrt(np.maximum(np.square(products).T @ np.square(phi) / n - np.square(means), 0.0) / n)
    if trained:
        means[:, 0] = np.where(i == j, np.maximum(means[:, 0], 0.0), means[:, 0])
    most = np.maximum(INFLATION / (k - 1), -ndtri(LEVEL / (2 * means.size)) * errors)
    return bool((np.abs(means) < most).all())


def _no_pair_is_correlated(v: np.ndarray, *, trained: bool) -> bool:
    _, k, d = v.shape
    pairs = np.triu_indices(k, 1)
    by_coordinate = v.T.swapaxes(1, 2)
    scores = [
        (u.T @ u)[pairs] / np.sqrt(np.maximum(np.square(u).T @ np.square(u), 1e-12)[pairs]) for u in by_coordinate
    ]
    scores = np.maximum(scores, 0.0) if trained else np.array(scores)
    return bool(chdtrc(d * len(pairs[0]), np.square(scores).sum()) > LEVEL)


def _orthonormal(t: np.ndarray) -> np.ndarray:
    """Return one and the parameters as columns of unit mean square, orthogonal to each other."""
    q, _ = np.linalg.qr(np.concatenate([np.ones((len(t), 1)), t - t.mean(axis=0)], axis=1))
    phi = q * np.sqrt(len(t))
    phi[:, 0] = 1.0
    return phi
