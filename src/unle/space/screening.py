r"""Coordinates of x that say something: those that depend on theta, and those that depend on these.

A coordinate that is independent of theta and of all coordinates that are kept has a density of its own, which does not
depend on theta: it can be left out of x.  One that is independent of theta alone cannot, as it may be the noise in
another one.  Independence is tested two by two, by correlations of ranks turned into normal scores, and of their
squares; theta enters by its monomials up to the second degree.  A dependence that shows in three or more variables
together only is not seen.
"""

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri

from unle.space.data_kinds import _monomials, _normal_scores

ROWS = 4000  # that are looked at
MAX_COORDINATES = 2000  # of x; of longer ones all are kept
LEVEL = 1e-3  # probability that anything is kept where nothing depends on theta


def informative_coordinates(theta: Float[np.ndarray, "n dim"], x: Float[np.ndarray, "n dim_x"]) -> tuple[int, ...]:
    """Return the coordinates of x that say something about theta, by themselves or beside others.

    Args:
        theta: parameters.
        x: data.

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
    some = np.random.default_rng(0).permutation(len(x))[:ROWS]
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
