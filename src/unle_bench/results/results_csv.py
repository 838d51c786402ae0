"""Benchmark rows as a small text file, to be kept beside the pages made from it.

A results file (SQLite) holds everything, with arrays for figures; this holds the rows alone, a line each, with the
conditions that tables name.  What is written can be read again, and `unle bench --show` and `unle paper` take either.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unle.errors import StoreError
from unle_bench.results.results_store import KEY, NUMBERS, Cell, ResultsStore

WORDS = ("observations", "classifier", "device", "machine")  # conditions that are texts
COUNTS = ("draws", "cores", "together", "workers")  # and whole numbers
VERSIONS = ("unle", "jax", "sbi")
ORIGIN = ("date", "commit")  # of the row; rows of older files have none
HEADS = (*KEY, "outcome", *NUMBERS, *WORDS, *COUNTS, "cold", *VERSIONS, *ORIGIN)


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the rows, a line each, below a line of names; numbers to six digits."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(HEADS)
    for row in rows:
        conditions = row["conditions"]
        versions = conditions.get("versions", {})
        numbers = ["" if row[name] is None else f"{row[name]:.6g}" for name in NUMBERS]
        texts = [conditions.get(name, "") for name in (*WORDS, *COUNTS)]
        origin = [conditions.get(name, "") for name in ORIGIN]
        cold = int(conditions.get("cold", True))
        writer.writerow([*(row[name] for name in (*KEY, "outcome")), *numbers, *texts, cold, *_each(versions), *origin])
    return buffer.getvalue()


def _each(versions: Mapping[str, str]) -> list[str]:
    return [versions.get(name, "") for name in VERSIONS]


def from_csv(text: str) -> list[dict[str, Any]]:
    """Return the rows that `as_csv` wrote, as `ResultsStore.rows` gives them, in the order of their keys.

    Raises:
        StoreError: the text is something else.

    Example:
        >>> row = {"task": "sir", "method": "nle", "budget": 1000, "seed": 0, "observation": 1, "outcome": "ok"}
        >>> row |= dict.fromkeys(NUMBERS) | {"c2st": 0.6, "conditions": {"device": "cpu", "cold": False}}
        >>> from_csv(as_csv([row]))[0]["c2st"]
        0.6
    """
    try:
        rows = [_row(line) for line in csv.DictReader(io.StringIO(text))]
    except (KeyError, ValueError, TypeError) as error:
        raise StoreError(f"expected rows written by `unle bench --write FILE.csv`; got {error!r}.") from error
    return sorted(rows, key=lambda row: tuple(row[name] for name in KEY))


def _row(line: Mapping[str, str]) -> dict[str, Any]:
    conditions: dict[str, Any] = {name: line[name] for name in WORDS if line[name]}
    conditions |= {name: int(line[name]) for name in COUNTS if line.get(name)}  # "workers" is younger than some files
    conditions |= {"cold": bool(int(line["cold"])), "versions": {name: line[name] for name in VERSIONS if line[name]}}
    conditions |= {name: line[name] for name in ORIGIN if line.get(name)}
    keys = {name: line[name] if name in ("task", "method") else int(line[name]) for name in KEY}
    numbers = {name: float(line[name]) if line[name] else None for name in NUMBERS}
    return keys | {"outcome": line["outcome"]} | numbers | {"conditions": conditions}


class RowsAlone:
    """Rows without arrays, in the place of a `ResultsStore` that figures and tables read."""

    def __init__(self, rows: Iterable[dict[str, Any]]):
        self._rows = list(rows)

    def rows(self) -> list[dict[str, Any]]:
        """Return all rows."""
        return self._rows

    def records(self, name: str) -> list[Cell]:
        """Return nothing: there are no arrays."""
        return []

    def record(self, cell: Cell, name: str) -> dict[str, Any]:
        """Refuse: there are no arrays."""
        raise StoreError(f"there is no {name} of {cell}: a CSV file holds rows alone.")


@contextmanager
def opened(path: Path) -> Iterator[ResultsStore | RowsAlone]:
    """Open a results file to read, or a CSV file of its rows."""
    if path.suffix != ".csv":
        with ResultsStore(path, read_only=True) as store:
            yield store
        return
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise StoreError(f"{path} could not be read: {error.strerror or error}.") from error
    yield RowsAlone(from_csv(text))
