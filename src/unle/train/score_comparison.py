"""Which of two fits is better, by scores of the same held-out rows.

A difference row by row has a small standard error, since both fits find the same rows easy or hard.  A fit is better if
the mean difference exceeds one standard error, or as many as are asked for; never where a score is NaN.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike


def standard_error(rows: ArrayLike) -> float:
    """Return the standard error of the mean over all rows, of any shape."""
    rows = np.ravel(np.asarray(rows))
    return float(rows.std() / np.sqrt(rows.size))


def is_better(scores: ArrayLike, than: ArrayLike | None = None, *, errors: float = 1.0) -> bool:
    """Return whether scores exceed others by more than so many standard errors of their difference.

    Args:
        scores: of each held-out row, higher is better.
        than: scores of the same rows by another fit; zero if None.
        errors: standard errors that the mean difference must exceed.

    Example:
        >>> from unle.train.score_comparison import is_better
        >>> is_better([1.0, 2.0, 3.0], than=[0.9, 2.1, 2.9]), is_better([1.0, 2.0, 3.0], than=[0.8, 1.9, 2.9])
        (False, True)
    """
    difference = np.ravel(np.asarray(scores) if than is None else np.asarray(scores) - np.asarray(than))
    return bool(difference.mean() > errors * difference.std() / np.sqrt(difference.size))


def simplest_as_good(scores: Sequence[ArrayLike]) -> int:
    """Return which of several fits to keep: the first, unless a later one is better than the best before it.

    Args:
        scores: of each held-out row, one array per fit, the simplest fit first.
    """
    best = 0
    for i in range(1, len(scores)):
        if is_better(scores[i], scores[best]):
            best = i
    return best
