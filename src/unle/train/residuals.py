r"""Repeated measurements: do the residuals of a base that was fitted to single ones look like those of repeated ones?

One base serves all measurements, if they are repeated.  Blocks of x that look alike
(`unle.space.dependence`) need not be so in every respect, nor independent given theta: those of a time series are not,
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

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.special import chdtrc, ndtri

from unle.compiling import on_device
from unle.models import AbstractBase, Repeated
from unle.space.dependence import Blocks
from unle.train.rows import Rows, Splits
from unle.train.validation import base_scores, is_better

MOST_MEASUREMENTS = 50_000  # of single measurements, unless there are more simulations
EXAMINED_ROWS = 5000  # simulations whose residuals are looked at
LEVEL = 1e-4  # probability of taking repeated measurements for something else, by each question, if the base is right
INFLATION = 0.05  # of the variance of a sum that is put up with
MOST_PRODUCTS = 20  # coordinates of which all products are taken; of more, squares alone

FitBases = Callable[[PRNGKeyArray, Rows], AbstractBase]


def fit_shared_or_whole(key: PRNGKeyArray, fit: FitBases, rows: Rows, *, cuts: Sequence[Blocks]) -> AbstractBase:
    """Fit bases of single measurements and of whole w, and return the better ones, stacked over members.

    `cuts` are ways to cut w into measurements; the first whose residuals look like those of repeated measurements is
    compared with the whole.  `fit` returns bases for data of any width.
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
    unpadded = None if rows.n_unpadded is None else rows.n_unpadded * each
    dealt = Splits(*map(of_measurements, splits))
    return Rows(on_device(repeated, t.dtype), on_device(parts, w.dtype), dealt, n_unpadded=unpadded)


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
