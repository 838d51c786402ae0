r"""Repeated measurements in x: blocks of coordinates that are alike whatever theta is.

A simulator that measures the same thing k times returns x = (y_1, ..., y_k).  If the y_b are independent and alike
given theta, p(x | theta) = prod_b p(y_b | theta): one likelihood to learn from k times the data.  Blocks that are
alike can be told from blocks that are not:

    E[(g(y_b) - mean_c g(y_c)) phi(theta)] = 0   for all functions g and phi and every block b.

Here g and phi are monomials up to the second degree, of ranks turned into normal scores, which no outlier can upset.
This is a first look, at some rows.  Whether blocks are alike in all rows, and *independent* given theta, is asked of
the residuals of a fit: see `unle.train.residuals`.
"""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri

MIN_ROWS = 200  # with fewer, blocks that differ may pass
ROWS = 2000  # that are looked at,
MAX_VALUES = 1_000_000  # or fewer, so that there are not more numbers in them
MAX_COORDINATES = 2000  # of x; nothing is looked for in longer ones
LEVEL = 1e-3  # probability that repeated measurements are not recognised, with not too few rows
MAX_PRODUCTS = 8  # coordinates of which all products are taken; of more, squares alone
MAX_CUTS = 3  # that are returned

Blocks = tuple[tuple[int, ...], ...]


def repeated_blocks(theta: Float[np.ndarray, "n dim"], x: Float[np.ndarray, "n dim_x"]) -> tuple[Blocks, ...]:
    """Return ways to cut x into measurements that are alike, most measurements first; none if there is no such way.

    Each way lists the coordinates of every measurement.  They may stand together, (a1, b1, a2, b2, ...), or apart,
    (a1, a2, ..., b1, b2, ...).

    Args:
        theta: parameters.
        x: data.

    Example:
        >>> import numpy as np
        >>> from unle.space.repetition import repeated_blocks
        >>> rng = np.random.default_rng(0)
        >>> theta = rng.normal(size=(1000, 2))
        >>> repeated_blocks(theta, np.tile(theta, 2) + rng.normal(size=(1000, 4)))
        (((0, 1), (2, 3)),)
        >>> repeated_blocks(theta, theta + rng.normal(size=(1000, 2)))
        ()
    """
    n, dim = x.shape
    if n < MIN_ROWS or not 2 <= dim <= MAX_COORDINATES:
        return ()
    some = np.random.default_rng(0).permutation(n)[: min(ROWS, MAX_VALUES // dim)]
    phi = _monomials(_normal_scores(np.asarray(theta, float)[some]), constant=True)
    values = np.asarray(x, float)[some]
    accepted: list[Blocks] = []
    for blocks in _cuts(dim):
        if _same_law(phi, values[:, np.array(blocks)]):
            accepted.append(blocks)
        if len(accepted) == MAX_CUTS:
            break
    return tuple(accepted)


def _cuts(dim: int) -> Iterator[Blocks]:
    """Yield the ways to cut so many coordinates into blocks of the same length, most blocks first."""
    for k in (k for k in range(dim, 1, -1) if dim % k == 0):
        together = np.arange(dim).reshape(k, -1)
        apart = np.arange(dim).reshape(-1, k).T
        for cut in (together, apart) if k < dim else (together,):
            yield tuple(tuple(int(i) for i in block) for block in cut)


def _same_law(phi: Float[np.ndarray, "n feature"], y: Float[np.ndarray, "n block dim"]) -> bool:
    n, k, d = y.shape
    scores = _normal_scores(y.reshape(n * k, d))  # ranks among all blocks
    g = _monomials(scores, constant=False).reshape(n, k, -1)
    off = (g - g.mean(axis=1, keepdims=True)).reshape(n, -1)
    sums, squares = off.T @ phi, np.square(off).T @ np.square(phi)
    t = np.abs(sums) / np.sqrt(np.where(squares > 0, squares, np.inf))  # self-normalised: its tails are no heavier
    return bool(t.max() < -ndtri(LEVEL / (2 * t.size)))


def _normal_scores(values: np.ndarray) -> np.ndarray:
    from scipy.stats import rankdata  # takes longer to import than everything else that a saved posterior needs

    return ndtri((rankdata(values, axis=0) - 0.5) / len(values))


def _monomials(z: np.ndarray, *, constant: bool) -> np.ndarray:
    """Return columns z_i, z_i z_j and, if wanted, ones."""
    i, j = np.triu_indices(z.shape[1]) if z.shape[1] <= MAX_PRODUCTS else np.diag_indices(z.shape[1])
    return np.concatenate([np.ones((len(z), int(constant))), z, z[:, i] * z[:, j]], axis=1)
