"""Training on more simulations than fit in memory: a window of rows, renewed while training goes on.

Loops hold a window of rows as arrays, as if these were all data.  Held-out rows stay in it for ever.  Between two
compiled chunks, as many training rows as a chunk draws are replaced, the oldest first, by other rows of the store: in
one pass over the store, in random order, every row enters the window once; then comes another pass in another order.
A fit whose batches draw a million rows learns from about a million different simulations, as it would in memory.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from unle.store import SimulationStore, StoredRows, row_hashes

MOST_SPANS = 100_000  # of a store: the list of them is kept
SPANS_IN_WINDOW = 128  # neighbouring rows may be alike, if somebody sorted them; a window mixes so many spans
SHORTEST_SPAN, LONGEST_SPAN = 64, 10_000  # rows; shorter ones cost more time than they mix, longer ones memory
ORDER_SEED = 7  # distinguishes the seed of orders from that of lots

Standardise = Callable[[np.ndarray, np.ndarray], tuple[Float[Array, "n dim"], Float[Array, "n data"]]]


class Fresh(NamedTuple):
    """Rows that replace others: their indices in the window, standardised parameters and data."""

    indices: Int[Array, " m"]
    t: Float[Array, "m dim"]
    w: Float[Array, "m data"]


class Stream:
    """Where other rows come from.

    Args:
        store: of all simulations; it must stay open and must not change.
        standardise: turns raw (theta, x) into (t, w).
        training: indices of the training rows in the window; the others never change.
        held_out: largest lot of a row that is held out, see `unle.store.row_hashes`.
        window: largest lot of a row that is in the window at first.
        seed: of the lots, and of the order in which rows come.
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
