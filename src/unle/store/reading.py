"""Rows of the simulation table as arrays: all of them, span by span in bounded memory, or a random sample.

The sample of a table that does not fit in memory takes one pass.  Every row has a hash of its name (round, id) and of a
seed, uniform on the 64-bit numbers.  The rows with the smallest hashes are a uniform sample without replacement.  The
sample does not depend on the order of the rows, nor on how the table is cut.  A later pass over the table can tell from
the hash of a row whether it was in the sample.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, UInt

from unle.errors import StoreError
from unle.store.database import Database, by_width, unpack

SPAN_ROWS = 10_000  # rows that are read at a time
SHUFFLED_SPANS = 8  # spans that a shuffled stream holds in memory

_ROWS = "SELECT id, valid, reason, dim, width, data FROM simulations WHERE round = ? AND id BETWEEN ? AND ? ORDER BY id"
SURPLUS = 1.25  # the sample is cut back when it has grown by this factor


class Span(NamedTuple):
    """Neighbouring rows of one round: those whose ids lie between two, inclusive."""

    round: int
    first: int
    last: int


class StoredRows(NamedTuple):
    """Rows of the table, in the order of (round, id)."""

    round: Int[np.ndarray, "n"]  # the round of each simulation
    id: Int[np.ndarray, "n"]  # its number within that round
    theta: Float[np.ndarray, "n dim"]  # parameters
    x: Float[np.ndarray, "n dim_x"]  # data; a row of NaN where nothing of the right length came back
    valid: Bool[np.ndarray, "n"]  # whether the row may be trained on
    reasons: tuple[str, ...]  # why not; the empty string for valid rows
    seconds: Float[np.ndarray, "n"]  # the time each simulation took

    def take(self, positions: Int[np.ndarray, " m"]) -> "StoredRows":
        """Return the rows at these positions."""
        arrays = {name: value[positions] for name, value in self._asdict().items() if name != "reasons"}
        return StoredRows(reasons=tuple(self.reasons[i] for i in positions.tolist()), **arrays)

    @classmethod
    def concatenate(cls, parts: Sequence["StoredRows"]) -> "StoredRows":
        """Return several pieces as one; their vectors must be of one length."""
        if len(parts) == 1:
            return parts[0]
        if not parts:
            none, empty = np.empty(0, dtype=np.int64), np.empty((0, 0))
            return cls(none, none, empty, empty, np.empty(0, dtype=bool), (), np.empty(0))
        if len({(part.theta.shape[1], part.x.shape[1]) for part in parts}) > 1:
            raise ValueError("its vectors differ in length")
        names = [name for name in cls._fields if name != "reasons"]
        arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        return cls(reasons=tuple(reason for part in parts for reason in part.reasons), **arrays)


def spans(database: Database, round: int | None, size: int) -> list[Span]:
    """Cut one round, or all, into spans of `size` rows; the last one of a round may have fewer."""
    numbers = _rounds(database) if round is None else [round]
    return [span for number in numbers for span in _spans_of_round(database, number, size)]


def read_span(database: Database, span: Span, width: int) -> StoredRows:
    """Return the rows of a span, their check sums compared; `width` is the length of all valid data vectors."""
    rows = database.query(_ROWS, span)  # one statement: rows that are added meanwhile are all seen, or none is
    with database.decoding():
        return _as_arrays(span.round, rows, width)


def read_rows(database: Database, round: int | None) -> StoredRows:
    """Return the rows of one round, or of all, in order."""
    width = x_width_of(database, round)
    parts = [read_span(database, span, width) for span in spans(database, round, SPAN_ROWS)]
    with database.decoding():
        return StoredRows.concatenate(parts)


def read_batches(
    database: Database, size: int, *, round: int | None, shuffle: int | None
) -> Iterator[tuple[Float[np.ndarray, "rows dim"], Float[np.ndarray, "rows dim_x"]]]:
    """Yield valid (theta, x) in batches of `size`; see `SimulationStore.batches`."""
    rng = None if shuffle is None else np.random.default_rng(shuffle)
    pieces, width = spans(database, round, SPAN_ROWS), x_width_of(database, round)
    if rng is not None:
        pieces = [pieces[i] for i in rng.permutation(len(pieces))]
    rest: list[StoredRows] = []
    for start in range(0, len(pieces), SHUFFLED_SPANS):
        read = [read_span(database, span, width) for span in pieces[start : start + SHUFFLED_SPANS]]
        with database.decoding():
            rows = StoredRows.concatenate(rest + [part.take(np.flatnonzero(part.valid)) for part in read])
        if rng is not None:
            rows = rows.take(rng.permutation(len(rows.id)))
        whole = len(rows.id) - len(rows.id) % size
        for first in range(0, whole, size):
            yield rows.theta[first : first + size], rows.x[first : first + size]
        rest = [rows.take(np.arange(whole, len(rows.id)))]
    if rest and len(rest[0].id):
        yield rest[0].theta, rest[0].x


def x_width_of(database: Database, round: int | None) -> int:
    """Return the length of the valid data vectors of a round, or of all; of the others if none is valid."""
    condition, values = in_round(round)
    select = f"SELECT width FROM simulations WHERE {condition} AND"
    rows = database.query(f"{select} valid LIMIT 1", values)
    rows = rows or database.query(f"{select} width >= 0 GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT 1", values)
    if rows and not isinstance(rows[0][0], int):
        raise StoreError(f"{database.name} is damaged: its vectors have impossible lengths.")
    return rows[0][0] if rows else 0


def in_round(round: int | None) -> tuple[str, tuple]:
    """Return the SQL condition, and its values, for the rows of one round, or of all."""
    return ("TRUE", ()) if round is None else ("round = ?", (round,))


def _as_arrays(round: int, rows: list[tuple], width: int) -> StoredRows:
    ids, valid, reasons, dims, widths, content = zip(*rows, strict=True)
    if [bool(flag) for flag in valid] != [not reason for reason in reasons]:
        raise ValueError("an invalid simulation has no reason, or a valid one has one")
    dim, id_array = dims[0], np.array(ids, dtype=np.int64)
    if set(dims) != {dim} or {w for w, flag in zip(widths, valid, strict=True) if flag} - {width}:
        raise ValueError("its vectors differ in length")
    groups = [
        (
            members,
            unpack(round, id_array[members], [content[i] for i in members], dim, w, [reasons[i] for i in members]),
        )
        for w, members in by_width(widths)
    ]
    theta, x, seconds = np.empty((len(ids), dim)), np.full((len(ids), width), np.nan), np.empty(len(ids))
    for members, numbers in groups:
        theta[members], seconds[members] = numbers[:, :dim], numbers[:, -1]
        if numbers.shape[1] == dim + width + 1:
            x[members] = numbers[:, dim:-1]
    return StoredRows(np.full(len(ids), round), id_array, theta, x, np.array(valid, dtype=bool), reasons, seconds)


def _rounds(database: Database) -> list[int]:
    rounds, last = [], -1
    while (number := database.query("SELECT min(round) FROM simulations WHERE round > ?", (last,))[0][0]) is not None:
        rounds.append(last := number)  # by the primary key; DISTINCT would read the whole table
    return rounds


def _spans_of_round(database: Database, round: int, size: int) -> list[Span]:
    ids = "SELECT id FROM simulations WHERE round = ?"
    first = database.query(f"{ids} ORDER BY id LIMIT 1", (round,))
    if not first:
        return []
    starts, [(last,)] = [first[0][0]], database.query(f"{ids} ORDER BY id DESC LIMIT 1", (round,))
    while following := database.query(f"{ids} AND id >= ? ORDER BY id LIMIT 1 OFFSET {size}", (round, starts[-1])):
        starts.append(following[0][0])
    if not all(isinstance(number, int) for number in [*starts, last]):
        raise StoreError(f"{database.name} is damaged: the number of a simulation is no number.")
    return [Span(round, a, b - 1) for a, b in zip(starts, [*starts[1:], last + 1], strict=True)]


def row_hashes(rows: StoredRows, seed: Sequence[int]) -> UInt[np.ndarray, " n"]:
    """Return the hash of every row; other seeds give independent hashes."""
    rounds, position = np.unique(rows.round, return_inverse=True)
    states = [np.random.SeedSequence([*seed, int(number)]).generate_state(1, np.uint64)[0] for number in rounds]
    start = np.array(states, dtype=np.uint64)[position] if len(rounds) else np.empty(0, dtype=np.uint64)
    with np.errstate(over="ignore"):  # SplitMix64: a counter, and two rounds of multiply and xor-shift
        z = start + (rows.id.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


class Reservoir:
    """The `size` rows with the smallest hashes among all that were offered."""

    def __init__(self, size: int, seed: Sequence[int]):
        self._size, self._seed = size, tuple(seed)
        self._parts: list[StoredRows] = []
        self._hashes: list[np.ndarray] = []
        self._limit = np.iinfo(np.uint64).max  # rows with larger hashes cannot enter any more

    def offer(self, rows: StoredRows) -> None:
        """Take those of the rows whose hashes are small enough."""
        hashes = row_hashes(rows, self._seed)
        small = np.flatnonzero(hashes <= self._limit)
        if len(small):
            self._parts.append(rows.take(small))
            self._hashes.append(hashes[small])
        if sum(map(len, self._hashes)) > SURPLUS * self._size:
            self._cut_back()

    def sample(self) -> tuple[StoredRows, UInt[np.ndarray, " n"]]:
        """Return the sample and its hashes, in the order of the hashes, which is a random one."""
        self._cut_back()
        hashes = self._hashes[0]
        order = np.argsort(hashes, kind="stable")
        return self._parts[0].take(order), hashes[order]

    def _cut_back(self) -> None:
        rows, hashes = StoredRows.concatenate(self._parts), np.concatenate([np.empty(0, np.uint64), *self._hashes])
        if len(hashes) > self._size:
            kept = np.sort(np.argpartition(hashes, self._size - 1)[: self._size])
            rows, hashes = rows.take(kept), hashes[kept]
            self._limit = hashes.max()
        self._parts, self._hashes = [rows], [hashes]
