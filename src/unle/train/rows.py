"""The rows that a fit is made to, and which of them each member of an ensemble trains on."""

from typing import NamedTuple

import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from unle.space.host_device import on_device
from unle.train.stream import Fresh, Stream, scatter_rows

ROWS_PER_BATCH_ROW = 40
LARGEST_BATCH = 4096
ROWS_PER_STEP = 4  # of all rows: a fit to more takes more steps,
MOST_STEPS = 4  # up to so many times the number asked for
MOST_HELD_OUT = 2000  # rows per member: a mean over as many is precise, and validation stays cheap
STOPPING_SHARE = 0.6  # share of the held-out rows by which training stops; the others are for the last decision alone


class Splits(NamedTuple):
    """Rows that each ensemble member trains on, and rows held out from it."""

    train: Int[Array, "member train"]
    held_out: Int[Array, "member held_out"]


class Rows(NamedTuple):
    """Standardised simulations, dealt to the members of an ensemble.

    Attributes:
        t: standardised parameters.
        w: standardised data; with an axis for members, if each has its own.
        splits: training and held-out rows of every member.
        stream: where other training rows come from, if these are a window on more data than fit in memory.
        n_unpadded: how many held-out rows of a member there are; those beyond repeat them (`padded`).  None for all.

    Example:
        >>> import jax.numpy as jnp, jax.random as jr
        >>> from unle.train import Rows, make_splits
        >>> rows = Rows(jnp.zeros((1000, 1)), jnp.zeros((1000, 2)), make_splits(jr.key(0), 1000, members=4))
        >>> rows.members, rows.n_held_out, rows.stopping, rows.deciding
        (4, 100, slice(0, 60, None), slice(60, 100, None))
    """

    t: Float[Array, "n dim"]
    w: Float[Array, "n *member data"]
    splits: Splits
    stream: Stream | None = None
    n_unpadded: int | None = None

    @property
    def members(self) -> int:
        """Size of the ensemble."""
        return self.splits.train.shape[0]

    @property
    def table(self) -> tuple[Array, Array, Splits]:
        """What a compiled program may take: (t, w, splits)."""
        return self.t, self.w, self.splits

    @property
    def n_held_out(self) -> int:
        """How many rows are held out from each member, repetitions left out."""
        return self.splits.held_out.shape[1] if self.n_unpadded is None else self.n_unpadded

    @property
    def stopping(self) -> slice:
        """The held-out rows by which training stops, and the kind of energy is chosen."""
        return slice(0, max(1, round(STOPPING_SHARE * self.n_held_out)))

    @property
    def deciding(self) -> slice:
        """The other held-out rows, which decide whether energies are kept."""
        return slice(self.stopping.stop, self.n_held_out)

    def renewed(self, n: int) -> "Rows":
        """Return the window after n training rows of it were replaced."""
        if self.stream is None:
            return self
        return self.with_fresh(self.stream.take(n))

    def with_fresh(self, fresh: Fresh) -> "Rows":
        """Return the window with other rows in the place of some."""
        t, w = scatter_rows((self.t, self.w), fresh.indices, (fresh.t, fresh.w))
        return self._replace(t=t, w=w)

    def padded(self, capacity: int | None) -> "Rows":
        """Bring arrays to shapes that depend on `capacity` alone, so that growing data compile once.

        The first rows and indices are all of them once.  Those that follow repeat them in random order: the oldest,
        say, are not repeated more often than others.
        """
        n = self.t.shape[0]
        if capacity is None or capacity <= n:
            return self
        held_out, rng = held_out_size(capacity), np.random.default_rng(n)

        def extended(row, length):
            return np.concatenate([row, np.resize(rng.permutation(row), max(0, length - len(row)))])

        def repeat(indices, length):
            return on_device([extended(row, length) for row in np.asarray(indices)], np.int32)

        splits = Splits(repeat(self.splits.train, capacity - held_out), repeat(self.splits.held_out, held_out))
        rows = extended(np.arange(n), capacity)
        t, w = (on_device(np.asarray(part)[rows], part.dtype) for part in (self.t, self.w))
        return Rows(t, w, splits, self.stream, self.n_held_out)


def batch_size(smallest: int, rows: int) -> int:
    """Return rows per step: more where there are many, so that a fit of given length sees each row as often.

    Example:
        >>> from unle.train.rows import batch_size
        >>> [batch_size(256, rows) for rows in (100, 5_000, 40_000, 1_000_000)]
        [100, 256, 1000, 4096]
    """
    return min(rows, max(smallest, min(rows // ROWS_PER_BATCH_ROW, LARGEST_BATCH)))


def step_count(fewest: int, rows: int) -> int:
    """Return steps of a fit: more where there are many rows, which have more to say.

    Example:
        >>> from unle.train.rows import step_count
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
    """Choose held-out rows for each member out of n, disjoint between members as far as the data allow.

    Disjoint parts make the mean held-out score of the ensemble an average over as many rows as possible.

    Args:
        key: randomness of the choice.
        n: number of rows.
        members: of the ensemble.
        fraction: held out from each member.
        among: which rows of a larger table these are, and the most rows that it can have.  With the same key, other
            rows of the table are split nearly as these are: nearly none is held out from a member now that it was
            trained on before.
    """
    held_out = held_out_size(n, fraction)
    # On the host: a new number of rows would be a new program, and every round has one.
    rng = np.random.default_rng(np.asarray(jr.key_data(key)))
    order = rng.permutation(n) if among is None else np.argsort(rng.random(among[1])[among[0]])
    starts = np.arange(members)[:, None] * held_out
    chosen = np.take(order, starts + np.arange(held_out), mode="wrap")
    train = np.stack([others(n, rows) for rows in chosen])
    return Splits(on_device(train, np.int32), on_device(chosen, np.int32))


def others(n: int, rows: Int[np.ndarray, " some"]) -> Int[np.ndarray, " rest"]:
    """Return which of n rows are not among the given ones, in order.

    Example:
        >>> import numpy as np
        >>> from unle.train.rows import others
        >>> others(5, np.array([3, 0])).tolist()
        [1, 2, 4]
    """
    left = np.ones(n, bool)
    left[rows] = False
    return np.flatnonzero(left)
