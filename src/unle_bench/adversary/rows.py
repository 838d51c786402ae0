"""Rows in a file, a line of JSON each, added one by one; and what they say, by simulator and in all.

A crash loses at most the line that was being written.
"""

import csv
import io
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unle.errors import StoreError
from unle_bench.adversary.distances import MEASURES
from unle_bench.adversary.simulators import ADVERSARIES
from unle_bench.results.results_store import OK

Row = dict[str, Any]
Key = tuple[str, str, int, str]

KEY = ("simulator", "method", "seed", "observation")
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


CLOSE = 0.6  # C2ST up to which an alarm would be a false one
HEADS = ("simulator", "method", "runs", "failed", "wrong", "wrong but good", *MEASURES, "kept")


def by_simulator(rows: Sequence[Row]) -> list[list[str]]:
    """Return a line for every simulator and method: counts, and the worst of every measure."""
    order = {name: number for number, name in enumerate(ADVERSARIES)}
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(rows, key=lambda row: (order.get(row["simulator"], len(order)), row["method"], row["seed"])):
        groups.setdefault((row["simulator"], row["method"]), []).append(row)
    return [[*names, *_counts(group), *_worst(group), _kept(group)] for names, group in groups.items()]


def totals(rows: Sequence[Row]) -> list[str]:
    """Return a sentence for every method.

    Example:
        >>> totals([{"method": "aunle", "outcome": "ok", "wrong": True, "false_assurance": True, "verdict": "good"}])
        ['aunle: 1 run, 0 failed, 1 wrong, 1 of these with false assurance; 0 close, 0 of these not called good.']
    """
    sentences = []
    for method in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == method]
        failed, wrong, assured = _counts(own)[1:]
        close = [row for row in own if row["outcome"] == OK and not row["wrong"] and row["c2st"] <= CLOSE]
        alarmed = sum(row.get("verdict") != "good" for row in close)
        sentences.append(
            f"{method}: {len(own)} run{'' if len(own) == 1 else 's'}, {failed} failed, {wrong} wrong, {assured} of "
            f"these with false assurance; {len(close)} close, {alarmed} of these not called good."
        )
    return sentences


def line_of(row: Row) -> str:
    """Return one run in a line."""
    name = f"{row['simulator']}/{row['method']}/{row['seed']} ({row['observation']})"
    if row["outcome"] != OK:
        return f"{name}: failed: {row['outcome']}"
    if row.get("not_finite"):
        return f"{name}: wrong: {row['not_finite']} draws are not finite, verdict {row['verdict']}"
    judged = "false assurance" if row["false_assurance"] else "wrong" if row["wrong"] else "not wrong"
    numbers = ", ".join(f"{measure} {row[measure]:.3g}" for measure in MEASURES)
    return f"{name}: {judged}; {numbers}; verdict {row['verdict']}; {row['seconds']:.0f} s"


def _counts(rows: Sequence[Row]) -> list[str]:
    counts = (
        len(rows),
        sum(row["outcome"] != OK for row in rows),
        sum(bool(row["wrong"]) for row in rows),
        sum(bool(row["false_assurance"]) for row in rows),
    )
    return [str(count) for count in counts]


def _worst(rows: Sequence[Row]) -> list[str]:
    found = [[row[measure] for row in rows if row.get(measure) is not None] for measure in MEASURES]
    return [f"{max(values):.3g}" if values else "" for values in found]


def _kept(rows: Sequence[Row]) -> str:
    kept = [" + ".join(filter(None, (row.get("base"), row.get("energy")))) for row in rows if row["outcome"] == OK]
    return ", ".join(dict.fromkeys(filter(None, kept)))
