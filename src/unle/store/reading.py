"""Rows of the simulation store as arrays: all of them, or a stream of batches in bounded memory."""

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from unle.errors import StoreError
from unle.store.checks import row_checks
from unle.store.connection import Connection
from unle.store.fetching import Span, fetch, spans
from unle.store.ragged import Ragged

AT_ONCE = 10_000  # rows fetched at a time: what is in memory twice while it is unpacked
MIXED = 8  # blocks of that size that a shuffled stream holds in memory


class StoredRows(NamedTuple):
    """What `SimulationStore.read` returns, in the order of (round, id).

    Attributes:
        round: the round in which each simulation was asked for.
        id: its number within that round.
        theta: parameters.
        x: data; a row of NaN where nothing of the right length came back.
        valid: whether the row may be trained on.
        reasons: why not; the empty string for valid rows.
        seconds: the time each simulation took.
    """

    round: Int[np.ndarray, "n"]
    id: Int[np.ndarray, "n"]
    theta: Float[np.ndarray, "n dim"]
    x: Float[np.ndarray, "n dim_x"]
    valid: Bool[np.ndarray, "n"]
    reasons: tuple[str, ...]
    seconds: Float[np.ndarray, "n"]


class _Block(NamedTuple):
    """Some rows of one round, verified."""

    ids: np.ndarray
    theta: Ragged
    x: Ragged
    valid: np.ndarray
    reasons: list[str]
    seconds: np.ndarray


def read_rows(connection: Connection, round: int | None) -> StoredRows:
    """Return the rows of one round, or of all, in order."""
    return _assembled(connection, [(span.round, _block(connection, span)) for span in cut(connection, AT_ONCE, round)])


def read_span(connection: Connection, span: Span, width: int) -> StoredRows:
    """Return some neighbouring rows; all valid data vectors of the table have this length."""
    return _assembled(connection, [(span.round, _block(connection, span))], width)


def cut(connection: Connection, size: int, round: int | None) -> list[Span]:
    """Cut one round, or all, into spans of so many rows."""
    rounds = _rounds(connection) if round is None else [round]
    return [span for number in rounds for span in spans(connection, number, size)]


def _assembled(connection: Connection, blocks: list[tuple[int, _Block]], width: int | None = None) -> StoredRows:
    theta, x = Ragged.joined([b.theta for _, b in blocks]), Ragged.joined([b.x for _, b in blocks])
    reasons = tuple(chain.from_iterable(b.reasons for _, b in blocks))
    valid = np.concatenate([b.valid for _, b in blocks] or [np.empty(0, dtype=bool)])
    dim = theta.common_length()
    if width is None:
        width = Ragged(x.values, np.where(valid, x.lengths, -1)).common_length() or x.common_length()
    if (theta.lengths != dim).any() or (x.lengths[valid] != width).any():
        raise StoreError(f"{connection.name} is damaged: its vectors differ in length.")
    return StoredRows(
        round=np.concatenate([np.full(len(b.ids), number) for number, b in blocks] or [np.empty(0, dtype=np.int64)]),
        id=np.concatenate([b.ids for _, b in blocks] or [np.empty(0, dtype=np.int64)]),
        theta=theta.matrix(dim),
        x=x.matrix(width),
        valid=valid,
        reasons=reasons,
        seconds=np.concatenate([b.seconds for _, b in blocks] or [np.empty(0)]),
    )


def read_batches(
    connection: Connection, size: int, *, round: int | None, shuffle: int | None
) -> Iterator[tuple[Float[np.ndarray, "rows dim"], Float[np.ndarray, "rows dim_x"]]]:
    """Yield valid (theta, x) in batches of `size`; see `SimulationStore.batches`."""
    rng = None if shuffle is None else np.random.default_rng(shuffle)
    pieces = cut(connection, AT_ONCE, round)
    if rng is not None:
        pieces = [pieces[i] for i in rng.permutation(len(pieces))]
    pools = [pieces[i : i + MIXED] for i in range(0, len(pieces), MIXED)]
    rest: tuple[np.ndarray, np.ndarray] | None = None
    for pool in pools:
        parts = [part for span in pool if len((part := _valid(connection, span))[0])]
        parts = parts if rest is None else [rest, *parts]
        if not parts:
            continue
        try:
            theta, x = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        except ValueError as error:
            raise StoreError(f"{connection.name} is damaged: its vectors differ in length.") from error
        if rng is not None:
            order = rng.permutation(len(theta))
            theta, x = theta[order], x[order]
        whole = len(theta) - len(theta) % size
        for start in range(0, whole, size):
            yield theta[start : start + size], x[start : start + size]
        rest = theta[whole:], x[whole:]
    if rest is not None and len(rest[0]):
        yield rest


def _rounds(connection: Connection) -> list[int]:
    rounds, last = [], -1
    while (found := connection.query("SELECT min(round) FROM simulations WHERE round > ?", (last,))[0][0]) is not None:
        rounds.append(last := found)  # by the primary key; DISTINCT would read the whole table
    return rounds


def _valid(connection: Connection, span: Span) -> tuple[np.ndarray, np.ndarray]:
    block = _block(connection, span)
    width = Ragged(block.x.values, np.where(block.valid, block.x.lengths, -1)).common_length()
    return block.theta.matrix(block.theta.common_length())[block.valid], block.x.matrix(width)[block.valid]


def _block(connection: Connection, span: Span) -> _Block:
    """Return some rows, their check sums compared, as they are at one moment."""
    with connection.snapshot():
        return _verified(connection, span)


def _verified(connection: Connection, span: Span) -> _Block:
    invalid = "SELECT id, reason FROM simulations WHERE round = ? AND id BETWEEN ? AND ? AND valid = 0"
    reason_of = dict(connection.query(invalid, span))
    if not all(reason_of.values()):
        raise StoreError(f"{connection.name} is damaged: an invalid simulation has no reason.")
    ids, numbers = fetch(connection, span)
    reasons, valid = [""] * len(ids), np.ones(len(ids), dtype=bool)
    places = np.searchsorted(ids, np.array(list(reason_of), dtype=np.int64))
    valid[places] = False
    for place, reason in zip(places.tolist(), reason_of.values(), strict=True):
        reasons[place] = reason
    wanted = row_checks(span.round, ids, numbers.theta, numbers.x, valid, numbers.seconds, reasons)
    if (wanted != numbers.checks).any():
        raise StoreError(f"{connection.name} is damaged: the check sum of a simulation does not fit its numbers.")
    return _Block(ids, numbers.theta, numbers.x, valid, reasons, numbers.seconds)
