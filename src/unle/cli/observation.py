"""The observation x_o from the command line: a file of numbers, or the number of a task's observation."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from unle.arrays import as_array, entry_names, with_names
from unle.cli.console import refuse_missing
from unle.errors import InputError

KINDS = ".csv, .txt, .npy or .json"


class Observation(NamedTuple):
    """What was observed: one row per data vector, several if they are independent at the same theta."""

    rows: Float[np.ndarray, "rows dim_x"]
    names: tuple[str, ...] = ()  # of the columns, if they have names

    def record(self) -> dict[str, Any]:
        """Return what a run directory remembers; `from_record` reads it."""
        return {"x_o": self.rows} | ({"x_o_names": list(self.names)} if self.names else {})

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Observation | None":
        """Read what a run directory remembers."""
        if record["x_o"] is None:
            return None
        return cls(np.array(record["x_o"], dtype=float), tuple(record.get("x_o_names", ())))

    def of_length(self, dim_x: int) -> Any:
        """Return x_o for `Posterior.sample`; one number per line may mean one data vector."""
        if self.rows.shape == (dim_x, 1):
            return self.rows.T
        if self.rows.shape[1] != dim_x:
            raise InputError(
                f"expected an observation of length {dim_x}, as the simulations; got {self.rows.shape[1]}; "
                "try the same summary statistics in the same order."
            )
        return self.named

    @property
    def named(self) -> Any:
        """The rows, in a dictionary of columns if they have names."""
        return with_names(self.rows, self.names)


def read_observation(text: str, task: Any, *, gaps: bool = False) -> Observation:
    """Read an observation.

    The text names a file of numbers or, for a built-in task, is a number from 1 to 10.  With `gaps`, entries may be
    NaN.
    """
    if text.isdigit() and task is not None:
        return as_observation(task.observation(int(text)), f"observation {text}")
    if text.isdigit():
        raise InputError(f"expected a file: only built-in tasks have numbered observations; got {text}.")
    refuse_missing(text)
    path = Path(text)
    readers = {".csv": _text, ".txt": _text, ".npy": _npy, ".json": _json}
    if path.suffix not in readers:
        raise InputError(f"expected an observation in a file {KINDS}; got {path}.")
    try:
        values, names = readers[path.suffix](path)
    except InputError:
        raise
    except (ValueError, TypeError, EOFError, UnicodeDecodeError) as error:
        raise InputError(f"{path} could not be read as numbers: {error}".rstrip(".") + ".") from None
    return as_observation(values, str(path), gaps=gaps)._replace(names=names)


def as_observation(values: Any, source: str, *, gaps: bool = False) -> Observation:
    """Return the numbers as rows, or say why they cannot be an observation."""
    try:
        rows = as_array(values, "x_o")
    except InputError:
        raise InputError(f"expected numbers in {source}; got something else.") from None
    rows = np.atleast_2d(rows)
    if rows.ndim != 2 or rows.size == 0:
        raise InputError(f"expected one data vector, or rows of them, in {source}; got shape {rows.shape}.")
    if not (np.isfinite(rows) | (gaps & np.isnan(rows))).all():
        gap = "; a fit without an observation takes missing entries afterwards: unle sample DIR --observation FILE"
        raise InputError(f"expected finite numbers in {source}; got NaN or inf{gap * bool(np.isnan(rows).any())}.")
    return Observation(rows, entry_names(values))


def _text(path: Path) -> tuple[np.ndarray, tuple[str, ...]]:
    lines = [line.split("#")[0].strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    cells = [_split(line) for line in lines if line]
    if cells and all(len(row) > 1 and not row[-1] for row in cells):  # every line ends with a comma
        cells = [row[:-1] for row in cells]
    names: tuple[str, ...] = ()
    is_header = len(cells) > 1 or not any(map(_is_number, cells[0] if cells else []))
    if cells and path.suffix == ".csv" and is_header and not all(map(_is_number, cells[0])):
        names, cells = tuple(name.strip("\"'").removeprefix("x.") for name in cells[0]), cells[1:]
        if lines[0].lstrip().startswith((",", ";", '"",', '"";')):  # numbers of rows, as pandas and R write them
            names, cells = names[-len(cells[0]) + 1 :] if cells else names, [row[1:] for row in cells]
    if len({len(row) for row in cells}) > 1:
        raise InputError(f"expected rows of one length in {path}; got lengths {sorted({len(row) for row in cells})}.")
    rows = np.array([[_number(cell) for cell in row] for row in cells])
    return rows, names if len(names) == rows.shape[-1] else ()


def _split(line: str) -> list[str]:
    """Split at commas or semicolons, where an empty cell is a missing number; or else at spaces."""
    return [cell.strip() for cell in re.split("[,;]", line)] if re.search("[,;]", line) else line.split()


def _number(cell: str) -> float:
    """Return a number; one that is missing is NA in files of R, and an empty cell in those of pandas."""
    return float("nan") if cell in ("NA", "") else float(cell)


def _is_number(cell: str) -> bool:
    try:
        _number(cell)
    except ValueError:
        return False
    return True


def _npy(path: Path) -> tuple[Any, tuple[str, ...]]:
    return np.load(path, allow_pickle=False), ()


def _json(path: Path) -> tuple[Any, tuple[str, ...]]:
    values = json.loads(path.read_text(encoding="utf-8"))
    if isinstance(values, dict):
        if "x_o" not in values:
            raise InputError(f"expected a list of numbers, or an object with a list `x_o`, in {path}.")
        values = values["x_o"]
    return values, entry_names(values)
