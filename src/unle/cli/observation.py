"""The observation x_o from the command line: a file of numbers, or the number of a task's observation."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from unle.errors import InputError

KINDS = ".csv, .txt, .npy or .json"


def read_observation(text: str, task: Any, *, gaps: bool = False) -> Float[np.ndarray, "rows dim_x"]:
    """Read an observation: one row per data vector, several if they are independent at the same theta.

    The text names a file of numbers or, for a built-in task, is a number from 1 to 10.  With `gaps`, entries may be
    NaN.
    """
    if text.isdigit() and task is not None:
        return as_rows(task.observation(int(text)), f"observation {text}")
    path = Path(text)
    if not path.is_file():
        if text.isdigit():
            raise InputError(f"expected a file: only built-in tasks have numbered observations; got {text}.")
        raise InputError(f"expected a file with the observation; there is no file {path}.")
    readers = {".csv": _text, ".txt": _text, ".npy": _npy, ".json": _json}
    if path.suffix not in readers:
        raise InputError(f"expected an observation in a file {KINDS}; got {path}.")
    try:
        values = readers[path.suffix](path)
    except InputError:
        raise
    except (ValueError, TypeError, EOFError, UnicodeDecodeError) as error:
        raise InputError(f"{path} could not be read as numbers: {error}".rstrip(".") + ".") from None
    return as_rows(values, str(path), gaps=gaps)


def as_rows(values: Any, source: str, *, gaps: bool = False) -> Float[np.ndarray, "rows dim_x"]:
    """Return the numbers as rows, or say why they cannot be an observation."""
    try:
        rows = np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        raise InputError(f"expected numbers in {source}; got something else.") from None
    rows = np.atleast_2d(rows)
    if rows.ndim != 2 or rows.size == 0:
        raise InputError(f"expected one data vector, or rows of them, in {source}; got shape {rows.shape}.")
    if not (np.isfinite(rows) | (gaps & np.isnan(rows))).all():
        raise InputError(f"expected finite numbers in {source}; got NaN or inf.")
    return rows


def fit_to(rows: Float[np.ndarray, "read width"], dim_x: int) -> Float[np.ndarray, "rows dim_x"]:
    """Return the rows with the length that the simulations have; one number per line may mean one data vector."""
    if rows.shape == (dim_x, 1):
        return rows.T
    if rows.shape[1] != dim_x:
        raise InputError(
            f"expected an observation of length {dim_x}, as the simulations; got {rows.shape[1]}; "
            "try the same summary statistics in the same order."
        )
    return rows


def _text(path: Path) -> np.ndarray:
    lines = [line.split("#")[0].strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    cells = [line.replace(",", " ").replace(";", " ").split() for line in lines if line]
    if cells and path.suffix == ".csv" and not _numeric(cells[0]):
        cells = cells[1:]  # the names of the columns
    if len({len(row) for row in cells}) > 1:
        raise InputError(f"expected rows of one length in {path}; got lengths {sorted({len(row) for row in cells})}.")
    return np.array([[float(cell) for cell in row] for row in cells])


def _numeric(cells: list[str]) -> bool:
    try:
        [float(cell) for cell in cells]
    except ValueError:
        return False
    return True


def _npy(path: Path) -> np.ndarray:
    return np.load(path, allow_pickle=False)


def _json(path: Path) -> Any:
    values = json.loads(path.read_text(encoding="utf-8"))
    if isinstance(values, dict):
        if "x_o" not in values:
            raise InputError(f"expected a list of numbers, or an object with a list `x_o`, in {path}.")
        values = values["x_o"]
    return values
