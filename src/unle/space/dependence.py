r"""Which coordinates of x go together: repeated measurements, and coordinates that say something about theta.

**Repeated measurements**: blocks of coordinates that are alike whatever theta is.  A simulator that measures the same
thing k times returns x = (y_1, ..., y_k).  If the y_b are independent and alike given theta, p(x | theta) =
prod_b p(y_b | theta): one likelihood to learn from k times the data.  Blocks that are alike can be told from blocks
that are not:

    E[(g(y_b) - mean_c g(y_c)) phi(theta)] = 0   for all functions g and phi and every block b.

Here g and phi are monomials up to the second degree, of ranks turned into normal scores, which no outlier can upset.
This is a first look, at some rows.  Whether blocks are alike in all rows, and *independent* given theta, is asked of
the residuals of a fit: see `unle.train.residuals`.

**Coordinates that say something** are those that depend on theta, and those that depend on these.  A coordinate that is
independent of theta and of all coordinates that are kept has a density of its own, which does not depend on theta: it
can be left out of x.  One that is independent of theta alone cannot, as it may be the noise in another one.
Independence is tested two by two, by correlations of such scores, and of their squares.  A dependence that shows in
three or more variables together only is not seen.
"""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri

MIN_REPEATED_ROWS = 200  # with fewer, blocks that differ may pass
REPEATED_ROWS = 2000  # that are looked at,
MAX_VALUES = 1_000_000  # or fewer, so that there are not more numbers in them
SCREENED_ROWS = 4000  # that are looked at
MAX_COORDINATES = 2000  # of x; nothing is looked for in longer ones
# Probability that repeated measurements are not recognised, or that a coordinate is kept where none depends on theta.
LEVEL = 1e-3
MAX_PRODUCTS = 8  # coordinates of which all products are taken; of more, squares alone
MAX_CUTS = 3  # that are returned

Blocks = tuple[tuple[int, ...], ...]


def repeated_blocks(theta: Float[np.ndarray, "n dim"], x: Float[np.ndarray, "n dim_x"]) -> tuple[Blocks, ...]:
    """Return ways to cut x into measurements that are alike, most measurements first; none if there is no such way.

    Each way lists the coordinates of every measurement.  They may stand together, (a1, b1, a2, b2, ...), or apart,
    (a1, a2, ..., b1, b2, ...).

    Example:
        >>> import numpy as np
        >>> from unle.space.dependence import repeated_blocks
        >>> rng = np.random.default_rng(0)
        >>> theta = rng.normal(size=(1000, 2))
        >>> repeated_blocks(theta, np.tile(theta, 2) + rng.normal(size=(1000, 4)))
        (((0, 1), (2, 3)),)
        >>> repeated_blocks(theta, theta + rng.normal(size=(1000, 2)))
        ()
    """
    n, dim = x.shape
    if n < MIN_REPEATED_ROWS or not 2 <= dim <= MAX_COORDINATES:
        return ()
    some = np.random.default_rng(0).permutation(n)[: min(REPEATED_ROWS, MAX_VALUES // dim)]
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


def informative_coordinates(theta: Float[np.ndarray, "n dim"], x: Float[np.ndarray, "n dim_x"]) -> tuple[int, ...]:
    """Return the coordinates of x that say something about theta, by themselves or beside others.

    Example:
        >>> import numpy as np
        >>> from unle.space import informative_coordinates
        >>> rng = np.random.default_rng(0)
        >>> theta, noise = rng.normal(size=(1000, 1)), rng.normal(size=(1000, 3))
        >>> informative_coordinates(theta, np.column_stack([noise, theta[:, 0] + noise[:, 1]]))
        (1, 3)
    """
    dim_x = x.shape[1]
    if dim_x > MAX_COORDINATES:
        return tuple(range(dim_x))
    some = np.random.default_rng(0).permutation(len(x))[:SCREENED_ROWS]
    z = _normal_scores(np.asarray(x, float)[some])
    own = np.stack([_unit(z), _unit(z**2)])  # (feature, row, coordinate)
    kept = np.zeros(dim_x, bool)
    new = _depends(own, _unit(_monomials(_normal_scores(np.asarray(theta, float)[some]), constant=False)))
    while new.any():
        kept |= new
        new = ~kept & _depends(own, np.concatenate(list(own[:, :, new]), axis=1))
    return tuple(int(j) for j in np.flatnonzero(kept))


def _unit(columns: np.ndarray) -> np.ndarray:
    """Return centred columns of length one."""
    centred = columns - columns.mean(axis=0)
    length = np.linalg.norm(centred, axis=0)
    return centred / np.where(length > 1e-9, length, np.inf)


def _depends(own: Float[np.ndarray, "feature n dim_x"], others: Float[np.ndarray, "n other"]) -> np.ndarray:
    """Return which coordinates are correlated with one of the others."""
    n, dim_x = own.shape[1:]
    largest = np.abs(np.einsum("fnj,nk->fjk", own, others, optimize=True)).max(axis=(0, 2))
    tests = len(own) * dim_x * max(others.shape[1], 2 * dim_x)
    return largest * np.sqrt(n) > -ndtri(LEVEL / (2 * tests))


def _normal_scores(values: np.ndarray) -> np.ndarray:
    from scipy.stats import rankdata  # takes longer to import than everything else that a saved posterior needs

    return ndtri((rankdata(values, axis=0) - 0.5) / len(values))


def _monomials(z: np.ndarray, *, constant: bool) -> np.ndarray:
    """Return columns z_i, z_i z_j and, if wanted, ones."""
    i, j = np.triu_indices(z.shape[1]) if z.shape[1] <= MAX_PRODUCTS else np.diag_indices(z.shape[1])
    return np.concatenate([np.ones((len(z), int(constant))), z, z[:, i] * z[:, j]], axis=1)
