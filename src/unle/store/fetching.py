"""Thousands of rows in one fetch.

A row that Python fetches from SQLite costs a microsecond and a tuple, however short it is. Nearly all rows of a round
have the same lengths, so SQLite itself is asked to string their blobs together, and Python gets one long blob. The few
rows that differ (nothing came back, or a vector of another length) are fetched one by one.
"""

import sqlite3
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from unle.errors import StoreError
from unle.store.connection import Connection
from unle.store.packing import Alike, Unpacked, packed_size, unpack

_SPAN = "FROM simulations WHERE round = ? AND id BETWEEN ? AND ?"
# In the order of the primary key, in which the table lies. The check sums contain the ids: another order would be
# noticed. `group_concat` works on the bytes of a blob as they are; only the type of its result must be put right.
_TOGETHER = f"SELECT count(*), CAST(group_concat(data, '') FILTER (WHERE dim = ? AND width = ?) AS BLOB) {_SPAN}"
_OTHERS = f"SELECT id, dim, width, data {_SPAN} AND NOT (dim = ? AND width = ?) ORDER BY id"


class Span(NamedTuple):
    """Neighbouring rows of one round: those whose ids lie between two, inclusive."""

    round: int
    first: int
    last: int


def spans(connection: Connection, round: int, rows: int) -> list[Span]:
    """Cut a round into spans of so many rows; the last one may have fewer.

    Raises:
        StoreError: the file is damaged.
    """
    ids = "SELECT id FROM simulations WHERE round = ?"
    ends = (
        connection.query(f"{ids} ORDER BY id LIMIT 1", (round,)),
        connection.query(f"{ids} ORDER BY id DESC LIMIT 1", (round,)),
    )
    if not ends[0]:
        return []
    firsts, last = [ends[0][0][0]], ends[1][0][0]
    while following := connection.query(f"{ids} AND id >= ? ORDER BY id LIMIT 1 OFFSET {rows}", (round, firsts[-1])):
        firsts.append(following[0][0])
    if not all(isinstance(number, int) for number in [*firsts, last]):
        raise StoreError(f"{connection.name} is damaged: the number of a simulation is no number.")
    return [Span(round, a, b - 1) for a, b in zip(firsts, [*firsts[1:], last + 1], strict=True)]


def fetch(connection: Connection, span: Span) -> tuple[Int[np.ndarray, " n"], Unpacked]:
    """Return the ids and the numbers of the rows of a span, in order; check sums are not compared here.

    Raises:
        StoreError: the file is damaged, or cannot be read.
    """
    try:
        return _fetch(connection, span)
    except sqlite3.Error as error:
        raise StoreError(f"{connection.name} could not be read: {error}.") from error
    except (TypeError, ValueError, OverflowError) as error:
        raise StoreError(f"{connection.name} is damaged: {error}.") from error


def _fetch(connection: Connection, span: Span) -> tuple[np.ndarray, Unpacked]:
    shapes = f"SELECT dim, width {_SPAN}"
    usual = connection.query(f"{shapes} AND valid LIMIT 1", span) or connection.query(f"{shapes} LIMIT 1", span)
    dim, width = usual[0]
    if not isinstance(dim, int) or not isinstance(width, int) or dim < 0 or width < -1:
        raise ValueError("its vectors have impossible lengths")
    count, content = connection.query(_TOGETHER, (dim, width, *span))[0]
    content = content or b""
    together = len(content) // packed_size(dim, width)
    others = connection.query(_OTHERS, (*span, dim, width)) if together != count else []
    if together + len(others) != count:
        raise ValueError("a row has another length than it should")
    ids = _ids(connection, span, count)
    apart = np.searchsorted(ids, np.array([row[0] for row in others], dtype=np.int64))
    groups = [Alike(np.delete(np.arange(count), apart) if others else np.arange(count), width, content)]
    groups += _alike(others, apart, dim)
    return ids, unpack([group for group in groups if len(group.places)], dim)


def _alike(rows: list[tuple], places: np.ndarray, dim: int) -> list[Alike]:
    """Sort rows (id, dim, width, data) by the length of x."""
    if any(row[1] != dim for row in rows):
        raise ValueError("its vectors differ in length")
    widths = np.array([row[2] for row in rows], dtype=np.int64)
    groups = []
    for width in np.unique(widths).tolist():
        there = np.flatnonzero(widths == width)
        blobs = [rows[i][3] for i in there.tolist()]
        if width < -1 or {packed_size(dim, width)} != set(map(len, blobs)):
            raise ValueError("a row has another length than it should")
        groups.append(Alike(places[there], width, b"".join(blobs)))
    return groups


def _ids(connection: Connection, span: Span, count: int) -> np.ndarray:
    if count == span.last - span.first + 1:
        return np.arange(span.first, span.last + 1)
    return np.array([row[0] for row in connection.query(f"SELECT id {_SPAN} ORDER BY id", span)], dtype=np.int64)
