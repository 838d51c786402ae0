"""The rows that a fit is made to, which of them each member trains on, and where other rows come from.

`Rows` are standardised simulations, dealt to the members of an ensemble.  If there are more simulations than fit in
memory, they are a window, renewed by a `Stream` while training goes on.  Loops hold the window as arrays, as if it were
all data.  Held-out rows stay in it for ever.  Between two compiled chunks, as many training rows as a chunk draws are
replaced, the oldest first, by other rows of the store: in one pass over the store, in random order, every row enters
the window once; then comes another pass in another order.  A fit whose batches draw a million rows learns from about a
million different simulations, as it would in memory.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from unle.compiling import on_device
from unle.store import SimulationStore, StoredRows, row_hashes

MOST_SPANS = 100_000  # of a store: the list of them is kept
SPANS_IN_WINDOW = 128  # neighbouring rows may be alike, if somebody sorted them; a window mixes so many spans
SHORTEST_SPAN, LONGEST_SPAN = 64, 10_000  # rows; shorter ones cost more time than they mix, longer ones memory
ORDER_SEED = 7  # distinguishes the seed of orders from that of lots

Standardise = Callable[[np.ndarray, np.ndarray], tuple[Float[Array, "n dim"], Float[Array, "n data"]]]
ROWS_PER_BATCH_ROW = 40
LARGEST_BATCH = 4096
ROWS_PER_STEP = 4  # of all rows: a fit to more takes more steps,
MOST_STEPS = 4  # up to so many times the number asked for
MOST_HELD_OUT = 2000  # rows per member: a mean over as many is precise, and validation stays cheap
STOPPING_SHARE = 0.6  # share of the held-out rows by which training stops; the others are for the last decision alone


class Fresh(NamedTuple):
    """Rows that replace others: their indices in the window, standardised parameters and data."""

    indices: Int[Array, " m"]
    t: Float[Array, "m dim"]
    w: Float[Array, "m data"]


class Stream:
    """Where other rows come from: a store that must stay open and must not change.

    `training` has the indices of the training rows in the window; the others never change.  `held_out` and `window` are
    the largest hashes (`unle.store.row_hashes`) of a row that is held out, and of one that is in the window at first.
    """

    def __init__(
        self,
        store: SimulationStore,
        standardise: Standardise,
        training: Int[np.ndarray, " m"],
        *,
        held_out: int,
        window: int,
        seed: Sequence[int],
    ):
        self._standardise, self._training = standardise, training
        self._store, self._seed, self._held_out, self._window = store, tuple(seed), held_out, window
        self._rows, self._oldest = self._passes(), 0
        self._rest: StoredRows | None = None
        self.taken = 0

    @property
    def size(self) -> int:
        """Simulations in the store, valid or not."""
        return self._store.count()

    def take(self, n: int) -> Fresh:
        """Return n rows in place of the n oldest, or of all training rows if they are fewer."""
        n = min(n, len(self._training))
        parts = [] if self._rest is None else [self._rest]
        while sum(len(part.id) for part in parts) < n:
            parts.append(next(self._rows))
        rows = StoredRows.concatenate(parts)
        self._rest = rows.take(np.arange(n, len(rows.id)))
        indices = self._training[(self._oldest + np.arange(n)) % len(self._training)]
        self._oldest = (self._oldest + n) % len(self._training)
        self.taken += n
        return Fresh(jnp.asarray(indices), *self._standardise(rows.theta[:n], rows.x[:n]))

    def _passes(self) -> Iterator[StoredRows]:
        """Yield valid training rows for ever, span by span; what is in the window at first is not in the first pass."""
        mixing = min(max(SHORTEST_SPAN, len(self._training) // SPANS_IN_WINDOW), LONGEST_SPAN)
        size = max(mixing, self._store.count() // MOST_SPANS)
        spans, width = self._store.spans(size), self._store.width(None) or 0
        for number in count():
            least = self._window if number == 0 else self._held_out
            for i in np.random.default_rng([*self._seed, ORDER_SEED, number]).permutation(len(spans)):
                rows = self._store.read_span(spans[i], width)
                wanted = np.flatnonzero(rows.valid & (row_hashes(rows, self._seed) > np.uint64(least)))
                if len(wanted):
                    yield rows.take(np.random.default_rng([*self._seed, ORDER_SEED, number, i]).permutation(wanted))


@eqx.filter_jit
def scatter_rows(values: PyTree[Array], indices: Int[Array, " m"], fresh: PyTree[Array]) -> PyTree[Array]:
    """Return arrays with other rows at these indices."""
    return jax.tree.map(lambda old, new: old.at[indices].set(new), values, fresh)


class Splits(NamedTuple):
    """Rows that each ensemble member trains on, and rows held out from it."""

    train: Int[Array, "member train"]
    held_out: Int[Array, "member held_out"]


class Rows(NamedTuple):
    """Standardised simulations, dealt to the members of an ensemble.

    Example:
        >>> import jax.numpy as jnp, jax.random as jr
        >>> from unle.train import Rows, make_splits
        >>> rows = Rows(jnp.zeros((1000, 1)), jnp.zeros((1000, 2)), make_splits(jr.key(0), 1000, members=4))
        >>> rows.members, rows.n_held_out, rows.stopping, rows.deciding
        (4, 100, slice(0, 60, None), slice(60, 100, None))
    """

    t: Float[Array, "n dim"]  # standardised parameters
    w: Float[Array, "n *member data"]  # standardised data; with an axis for members, if each has its own
    splits: Splits  # training and held-out rows of every member
    # where other training rows come from, if these are a window on more data than fit in memory
    stream: Stream | None = None
    # how many held-out rows of a member there are; those beyond repeat them (`padded`).  None for all.
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
    key: PRNGKeyArray,  # randomness of the choice
    n: int,  # number of rows
    *,
    members: int,  # of the ensemble
    fraction: float = 0.1,  # held out from each member
    # which rows of a larger table these are, and the most rows that it can have.  With the same key, other rows of the
    # table are split nearly as these are: nearly none is held out from a member now that it was trained on before.
    among: tuple[Int[np.ndarray, " n"], int] | None = None,
) -> Splits:
    """Choose held-out rows for each member out of n, disjoint between members as far as the data allow.

    Disjoint parts make the mean held-out score of the ensemble an average over as many rows as possible.
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
