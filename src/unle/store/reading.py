"""Rows of the simulation store as arrays: all of them, or a stream of batches in bounded memory."""

import sqlite3
from collections.abc import Iterator
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from unle.errors import StoreError
from unle.store.checks import row_checks
from unle.store.connection import Connection
from unle.store.packing import unpack
from unle.store.ragged import Ragged

AT_ONCE = 10_000  # rows fetched at a time: a million tuples would cost far more memory than their arrays
MIXED = 8  # blocks of that size that a shuffled stream holds in memory

_COLUMNS = "SELECT data, width FROM simulations"


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
    reasons: list[str]
    seconds: np.ndarray


def read_rows(connection: Connection, round: int | None) -> StoredRows:
    """Return the rows of one round, or of all, in order."""
    rounds = _rounds(connection) if round is None else [round]
    blocks = [(number, block) for number in rounds for block in _blocks(connection, number)]
    theta, x = Ragged.joined([b.theta for _, b in blocks]), Ragged.joined([b.x for _, b in blocks])
    reasons = tuple(chain.from_iterable(b.reasons for _, b in blocks))
    valid = np.concatenate([_are_empty(b.reasons) for _, b in blocks] or [np.empty(0, dtype=bool)])
    dim = theta.common_length()
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
    spans = _spans(connection, _rounds(connection) if round is None else [round])
    if rng is not None:
        spans = [spans[i] for i in rng.permutation(len(spans))]
    pools = [spans[i : i + MIXED] for i in range(0, len(spans), MIXED)]
    rest: tuple[np.ndarray, np.ndarray] | None = None
    for pool in pools:
        parts = [part for span in pool if len((part := _valid(connection, *span))[0])]
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
    return [row[0] for row in connection.query("SELECT DISTINCT round FROM simulations ORDER BY round")]


def _spans(connection: Connection, rounds: list[int]) -> list[tuple[int, int, int]]:
    """Return (round, first id, last id) of the blocks of a stream."""
    spans = []
    for number in rounds:
        first, last = connection.query("SELECT min(id), max(id) FROM simulations WHERE round = ?", (number,))[0]
        if first is not None:
            spans += [(number, start, min(start + AT_ONCE - 1, last)) for start in range(first, last + 1, AT_ONCE)]
    return spans


def _valid(connection: Connection, number: int, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
    parts = list(_blocks(connection, number, " AND id BETWEEN ? AND ?", (first, last)))
    theta, x = Ragged.joined([b.theta for b in parts]), Ragged.joined([b.x for b in parts])
    valid = np.concatenate([_are_empty(b.reasons) for b in parts] or [np.empty(0, dtype=bool)])
    width = Ragged(x.values, np.where(valid, x.lengths, -1)).common_length()
    return theta.matrix(theta.common_length())[valid], x.matrix(width)[valid]


def _blocks(connection: Connection, number: int, span: str = "", values: tuple = ()) -> Iterator[_Block]:
    """Yield the rows of a round, some thousand at a time, their check sums compared."""
    where, values = f" WHERE round = ?{span}", (number, *values)
    # What is the same for nearly all rows, or can be counted, is not fetched row by row: every cell costs time.
    dim, ids = _outline(connection, where, values)
    invalid = connection.query(f"SELECT id, reason FROM simulations{where} AND (NOT valid OR reason <> '')", values)
    reason_of = dict(invalid)
    if not all(reason_of.values()):
        raise StoreError(f"{connection.name} is damaged: an invalid simulation has no reason.")
    try:
        cursor, start = connection.sql.execute(f"{_COLUMNS}{where} ORDER BY id", values), 0
        while rows := cursor.fetchmany(AT_ONCE):
            yield _block(number, ids[start : start + len(rows)], dim, rows, reason_of, connection.name)
            start += len(rows)
    except sqlite3.Error as error:
        raise StoreError(f"{connection.name} could not be read: {error}.") from error
    except (TypeError, ValueError, OverflowError) as error:
        raise StoreError(f"{connection.name} is damaged: {error}.") from error


def _outline(connection: Connection, where: str, values: tuple) -> tuple[int, Int[np.ndarray, " n"]]:
    """Return the length of theta, and the numbers of the simulations."""
    outline = "SELECT count(*), min(id), max(id), min(dim), max(dim) FROM simulations"
    count, first, last, dim, other = connection.query(f"{outline}{where}", values)[0]
    if not count:
        return 0, np.empty(0, dtype=np.int64)
    if dim != other or not isinstance(dim, int) or dim < 0:
        raise StoreError(f"{connection.name} is damaged: its vectors differ in length.")
    if count == last - first + 1:
        return dim, np.arange(first, last + 1)
    rows = connection.query(f"SELECT id FROM simulations{where} ORDER BY id", values)
    return dim, np.array([row[0] for row in rows], dtype=np.int64)


def _block(number: int, ids: np.ndarray, dim: int, rows: list[tuple], reason_of: dict[int, str], name: str) -> _Block:
    n = len(rows)
    blobs, widths = zip(*rows, strict=True)
    reasons = [reason_of.get(i, "") for i in ids.tolist()] if reason_of else [""] * n
    numbers = unpack(blobs, dim, np.array(widths, dtype=np.int64))
    block = _Block(ids, numbers.theta, numbers.x, reasons, numbers.seconds)
    wanted: Any = row_checks(number, ids, block.theta, block.x, _are_empty(reasons), block.seconds, reasons)
    if (wanted != numbers.checks).any():
        raise StoreError(f"{name} is damaged: the check sum of a simulation does not fit its numbers.")
    return block


def _are_empty(reasons: list[str]) -> Bool[np.ndarray, " n"]:
    if not any(reasons):
        return np.ones(len(reasons), dtype=bool)
    return np.fromiter((not reason for reason in reasons), bool, len(reasons))
