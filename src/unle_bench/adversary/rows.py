"""Rows in a file, a line of JSON each, added one by one: a crash loses at most the line that was being written."""

import csv
import io
import json
import os
from pathlib import Path
from typing import Any

from unle.errors import StoreError
from unle_bench.adversary.scoring import MEASURES
from unle_bench.adversary.trial import KEY, Key, Row

COLUMNS = (
    *KEY,
    "simulations",
    "outcome",
    *MEASURES,
    "wrong",
    "verdict",
    "false_assurance",
    "base",
    "energy",
    "valid",
    "seconds",
    "date",
    "version",
    "commit",
    "machine",
)


def append_row(path: Path, row: Row) -> None:
    """Add a row, in one piece, also when several processes write."""
    line = (json.dumps(row) + "\n").encode()
    try:
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, line)
        finally:
            os.close(file)
    except OSError as error:
        raise StoreError(f"{path} could not be written: {error.strerror or error}.") from error


def read_rows(path: Path) -> list[Row]:
    """Return all rows, none if there is no file; the last one of a key counts, and a torn last line is left out.

    Raises:
        StoreError: the file is something else.
    """
    if not path.exists():
        return []
    found: dict[Key, Row] = {}
    lines = path.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            found[key_of(row)] = row
        except (ValueError, KeyError, TypeError) as error:
            if number == len(lines) - 1:
                continue
            raise StoreError(f"{path} is damaged in line {number + 1}: {error!r}; try another file.") from error
    return list(found.values())


def mend(path: Path) -> None:
    """Take away a last line that was not written to its end, so that the next one begins on its own."""
    if path.exists():
        content = path.read_bytes()
        if content and not content.endswith(b"\n"):
            os.truncate(path, content.rfind(b"\n") + 1)


def key_of(row: Row) -> Key:
    """Return what a row is known by."""
    return row["simulator"], row["method"], int(row["seed"]), row["observation"]


def as_csv(rows: list[Row]) -> str:
    """Return the rows as a table for other programs."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([[_cell(row.get(name)) for name in COLUMNS] for row in rows])
    return buffer.getvalue()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
