r"""Do residuals look like those of repeated measurements: alike, and independent of each other?

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

import numpy as np
from jaxtyping import Float
from scipy.stats import chi2, norm

LEVEL = 1e-4  # probability of taking repeated measurements for something else, by each question, if the base is right
INFLATION = 0.05  # of the variance of a sum that is put up with
MOST_PRODUCTS = 20  # coordinates of which all products are taken; of more, squares alone


def look_repeated(
    v: Float[np.ndarray, "n block dim"], t: Float[np.ndarray, "n parameter"], *, trained: bool = False
) -> bool:
    """Return whether residuals are alike and independent as far as can be seen.

    Args:
        v: residuals.
        t: parameters.
        trained: whether the base was trained on these rows; a network that follows noise makes the correlation of
            different measurements negative there, and that is no reason to refuse.
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
    return bool(chi2.sf(squares.sum() * (k - 1) / k, (k - 1) * d * phi.shape[1]) > LEVEL)


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
    most = np.maximum(INFLATION / (k - 1), norm.isf(LEVEL / (2 * means.size)) * errors)
    return bool((np.abs(means) < most).all())


def _no_pair_is_correlated(v: np.ndarray, *, trained: bool) -> bool:
    _, k, d = v.shape
    pairs = np.triu_indices(k, 1)
    by_coordinate = v.T.swapaxes(1, 2)
    scores = [
        (u.T @ u)[pairs] / np.sqrt(np.maximum(np.square(u).T @ np.square(u), 1e-12)[pairs]) for u in by_coordinate
    ]
    scores = np.maximum(scores, 0.0) if trained else np.array(scores)
    return bool(chi2.sf(np.square(scores).sum(), d * len(pairs[0])) > LEVEL)


def _orthonormal(t: np.ndarray) -> np.ndarray:
    """Return one and the parameters as columns of unit mean square, orthogonal to each other."""
    q, _ = np.linalg.qr(np.concatenate([np.ones((len(t), 1)), t - t.mean(axis=0)], axis=1))
    phi = q * np.sqrt(len(t))
    phi[:, 0] = 1.0
    return phi
