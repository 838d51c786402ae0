"""A few numbers that stand for a data vector: its leading principal coordinates, by rank."""

import numpy as np
from jaxtyping import Float
from scipy.stats import rankdata

COMPONENTS = 3


def leading(
    x: Float[np.ndarray, "n dim_x"], others: Float[np.ndarray, "m dim_x"] | None = None
) -> tuple[Float[np.ndarray, "n k"], Float[np.ndarray, "m k"]]:
    """Return the leading coordinates of x, of unit variance, and those of other vectors in the same directions.

    Ranks are taken first, so that no outlier rules.

    Args:
        x: data vectors that decide which directions lead.
        others: further ones, or None.
    """
    both = x if others is None else np.concatenate([x, others])
    scores = 2 * (rankdata(both, axis=0) - 1) / max(len(both) - 1, 1) - 1
    scores = scores - scores[: len(x)].mean(axis=0)
    _, _, directions = np.linalg.svd(scores[: len(x)], full_matrices=False)
    coordinates = scores @ directions[:COMPONENTS].T
    coordinates = coordinates / (coordinates[: len(x)].std(axis=0) + 1e-12)
    return coordinates[: len(x)], coordinates[len(x) :]
