"""Training and held-out rows of each member of an ensemble."""

from typing import NamedTuple

import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from unle.space.host_device import on_device

ROWS_PER_BATCH_ROW = 40
LARGEST_BATCH = 4096
ROWS_PER_STEP = 4  # of all rows: a fit to more takes more steps,
MOST_STEPS = 4  # up to so many times the number asked for
MOST_HELD_OUT = 2000  # rows per member: a mean over as many is precise, and validation stays cheap


class Splits(NamedTuple):
    """Rows that each ensemble member trains on, and rows held out from it."""

    train: Int[Array, "member train"]
    held_out: Int[Array, "member held_out"]


def batch_size(smallest: int, rows: int) -> int:
    """Return rows per step: more where there are many, so that a fit of given length sees each row as often.

    Example:
        >>> from unle.train.splits import batch_size
        >>> [batch_size(256, rows) for rows in (100, 5_000, 40_000, 1_000_000)]
        [100, 256, 1000, 4096]
    """
    return min(rows, max(smallest, min(rows // ROWS_PER_BATCH_ROW, LARGEST_BATCH)))


def step_count(fewest: int, rows: int) -> int:
    """Return steps of a fit: more where there are many rows, which have more to say.

    Example:
        >>> from unle.train.splits import step_count
        >>> [step_count(1500, rows) for rows in (1_000, 10_000, 1_000_000)]
        [1500, 2500, 6000]
    """
    return max(fewest, min(rows // ROWS_PER_STEP, MOST_STEPS * fewest))


def held_out_size(n: int, fraction: float = 0.1) -> int:
    """Return how many of n rows are held out from each member."""
    return max(1, min(round(n * fraction), MOST_HELD_OUT))


def make_splits(
    key: PRNGKeyArray,
    n: int,
    *,
    members: int,
    fraction: float = 0.1,
    among: tuple[Int[np.ndarray, " n"], int] | None = None,
) -> Splits:
    """Deal n rows into held-out parts, disjoint between members as far as the data allow.

    Disjoint parts make the mean held-out score of the ensemble an average over as many rows as possible.

    Args:
        key: deals the rows.
        n: number of rows.
        members: of the ensemble.
        fraction: held out from each member.
        among: which rows of a larger table these are, and the most rows that it can have.  With the same key, other
            rows of the table are dealt nearly as these are: nearly none is held out from a member now that it was
            trained on before.
    """
    held = held_out_size(n, fraction)
    # On the host: a new number of rows would be a new program, and every round has one.
    rng = np.random.default_rng(np.asarray(jr.key_data(key)))
    order = rng.permutation(n) if among is None else np.argsort(rng.random(among[1])[among[0]])
    held_out = np.stack([np.take(order, np.arange(k * held, (k + 1) * held), mode="wrap") for k in range(members)])
    train = np.stack([others(n, rows) for rows in held_out])
    return Splits(on_device(train, np.int32), on_device(held_out, np.int32))


def others(n: int, rows: Int[np.ndarray, " some"]) -> Int[np.ndarray, " rest"]:
    """Return which of n rows are not among the given ones, in order.

    Example:
        >>> import numpy as np
        >>> from unle.train.splits import others
        >>> others(5, np.array([3, 0])).tolist()
        [1, 2, 4]
    """
    left = np.ones(n, bool)
    left[rows] = False
    return np.flatnonzero(left)


def pad(
    t: Float[Array, "n dim"], w: Float[Array, "n *member data"], splits: Splits, capacity: int | None
) -> tuple[Float[Array, "m dim"], Float[Array, "m *member data"], Splits]:
    """Bring data and splits to shapes that depend on `capacity` alone, so that growing data compile once.

    The first rows and indices are all of them once.  Those that follow repeat them in random order: the oldest, say,
    are not repeated more often than others.
    """
    n = t.shape[0]
    if capacity is None or capacity <= n:
        return t, w, splits
    held, rng = held_out_size(capacity), np.random.default_rng(n)

    def extended(row, length):
        return np.concatenate([row, np.resize(rng.permutation(row), max(0, length - len(row)))])

    def repeat(indices, length):
        return on_device([extended(row, length) for row in np.asarray(indices)], np.int32)

    padded = Splits(repeat(splits.train, capacity - held), repeat(splits.held_out, held))
    rows = extended(np.arange(n), capacity)
    return on_device(np.asarray(t)[rows], t.dtype), on_device(np.asarray(w)[rows], w.dtype), padded
