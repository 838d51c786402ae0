"""Simulations as files that other programs read and write: NumPy, CSV, Parquet.

One row per simulation. In CSV and Parquet the columns are `theta.NAME ...`, `x.NAME ...`, `valid`, `reason` and
`seconds`; in an .npz file the arrays are `theta`, `x`, `valid`, `reason`, `seconds`, `theta_names` and `x_names`. Only
`theta` and `x` are needed to read a file; other libraries keep their simulations as two such arrays.
"""

import csv
import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from unle.errors import InputError, StoreError, UnleError
from unle.store.safe_files import write_atomically

KINDS = ".npz, .csv or .parquet"
_EXTRA = ("valid", "reason", "seconds")


class Table(NamedTuple):
    """Simulations as plain arrays."""

    theta: Float[np.ndarray, "n dim"]  # parameters
    x: Float[np.ndarray, "n dim_x"]  # data
    theta_names: tuple[str, ...] = ()  # of the parameters; may be empty
    x_names: tuple[str, ...] = ()  # of the entries of x; may be empty
    # why a row is not valid; empty strings for valid rows; None if the file does not say
    reasons: tuple[str, ...] | None = None
    seconds: np.ndarray | None = None  # the time of each; None if the file does not say


def write_table(path: str | Path, table: Table) -> None:
    """Write simulations to a file, all or nothing; the suffix decides the kind."""
    path = Path(path)
    writers: dict[str, Callable[[Table], bytes]] = {".npz": _npz, ".csv": _csv, ".parquet": _parquet}
    if path.suffix not in writers:
        raise InputError(f"expected a file {KINDS}; got {path}")
    if path.suffix == ".npz" and path.exists() and not holds_simulations(path):
        raise StoreError(f"{path} holds something else, perhaps a saved posterior; try another name.")
    write_atomically(path, writers[path.suffix](table))


def holds_simulations(path: Path) -> bool:
    """Whether a file has arrays called theta and x, as tables of simulations do."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as file:
        return {"theta.npy", "x.npy"} <= set(file.namelist())


def read_table(path: str | Path, *, parameters: Sequence[str] = ()) -> Table:
    """Read simulations that `write_table`, or another program, wrote. Nothing in the file is executed.

    `parameters` are the columns that are parameters, where these are not called `theta...`; all others are data.
    """
    path = Path(path)
    if path.suffix in (".pt", ".pth", ".pkl", ".pickle"):
        raise InputError(
            f"{path} may hold pickled objects, which can run code when they are read, and is refused; "
            'try numpy.savez("simulations.npz", theta=theta, x=x) where it was made'
        )
    readers = {".npz": _from_npz, ".csv": _from_csv, ".parquet": _from_parquet}
    if path.suffix not in readers:
        raise InputError(f"expected a file {KINDS}; got {path}")
    try:
        return readers[path.suffix](path, tuple(parameters))
    except UnleError:
        raise
    except OSError as error:
        raise StoreError(f"{path} could not be read: {error.strerror or error}.") from error
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise StoreError(f"{path} could not be read as simulations: {error}.") from error


def _columns(table: Table) -> dict[str, Any]:
    dim, width = table.theta.shape[1], table.x.shape[1]
    names = table.theta_names or [str(i + 1) for i in range(dim)]
    x_names = table.x_names or [str(i + 1) for i in range(width)]
    columns: dict[str, Any] = {f"theta.{name}": table.theta[:, i] for i, name in enumerate(names)}
    columns |= {f"x.{name}": table.x[:, i] for i, name in enumerate(x_names)}
    reasons = table.reasons or ("",) * len(table.theta)
    seconds = np.zeros(len(table.theta)) if table.seconds is None else table.seconds
    return columns | {"valid": np.array([not r for r in reasons]), "reason": list(reasons), "seconds": seconds}


def _from_columns(columns: dict[str, Any], parameters: tuple[str, ...], path: Path) -> Table:
    if missing := [name for name in parameters if name not in columns]:
        raise InputError(f"expected columns {', '.join(missing)} in {path}; got {', '.join(columns)}")
    theta = list(parameters) or [name for name in columns if name.split(".")[0].rstrip("0123456789_") == "theta"]
    x = [name for name in columns if name not in theta and name not in _EXTRA]
    if not theta or not x:
        raise InputError(
            f"expected columns theta.NAME and x.NAME in {path}; got {', '.join(list(columns)[:8])}; "
            "try naming the columns that are parameters"
        )
    return Table(
        np.stack([np.asarray(columns[name], dtype=np.float64) for name in theta], axis=1),
        np.stack([np.asarray(columns[name], dtype=np.float64) for name in x], axis=1),
        tuple(name.removeprefix("theta.") for name in theta),
        tuple(name.removeprefix("x.") for name in x),
        *_extra_columns(columns),
    )


def _extra_columns(columns: Mapping[str, Any]) -> tuple[tuple[str, ...] | None, np.ndarray | None]:
    """Return reasons and seconds, where a file has them."""
    reasons = tuple(map(str, columns["reason"])) if "reason" in columns else None
    return reasons, np.asarray(columns["seconds"], dtype=np.float64) if "seconds" in columns else None


def _npz(table: Table) -> bytes:
    columns, buffer = _columns(table), io.BytesIO()
    arrays = {name: columns[name] for name in ("valid", "seconds")} | {"theta": table.theta, "x": table.x}
    texts = {"reason": columns["reason"], "theta_names": table.theta_names, "x_names": table.x_names}
    arrays |= {name: np.array(text, dtype=str) for name, text in texts.items()}
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def _from_npz(path: Path, parameters: tuple[str, ...]) -> Table:
    with np.load(path, allow_pickle=False) as file:
        if not {"theta", "x"} <= set(file.files):
            raise InputError(f"expected arrays `theta` and `x` in {path}; got {', '.join(file.files)}")
        arrays = {name: file[name] for name in file.files}
    theta, x = (np.asarray(arrays[name], dtype=np.float64) for name in ("theta", "x"))
    theta, x = (values[:, None] if values.ndim == 1 else values for values in (theta, x))
    if theta.ndim != 2 or x.ndim != 2 or len(theta) != len(x):
        raise InputError(f"expected `theta` (n, d) and `x` (n, k) in {path}; got {theta.shape} and {x.shape}")
    theta_names, x_names = (tuple(map(str, arrays.get(key, ()))) for key in ("theta_names", "x_names"))
    return Table(theta, x, parameters or theta_names, x_names, *_extra_columns(arrays))


def _csv(table: Table) -> bytes:
    columns = _columns(table)
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    cells = [
        map(int, values) if name == "valid" else values if name == "reason" else map(repr, values.tolist())
        for name, values in columns.items()
    ]
    writer.writerows(zip(*cells, strict=True))
    return text.getvalue().encode()


def _from_csv(path: Path, parameters: tuple[str, ...]) -> Table:
    with open(path, encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file)
        names = [name.strip() for name in next(reader, [])]
        rows = [row for row in reader if row]
    if not rows:
        raise InputError(f"expected a line of names and rows of numbers in {path}; got no rows")
    if any(len(row) != len(names) for row in rows):
        raise InputError(f"expected {len(names)} cells in every row of {path}, as in its first line")
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    return _from_columns(columns, parameters, path)


def _parquet(table: Table) -> bytes:
    pyarrow, parquet = _pyarrow()
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.table(_columns(table)), buffer)
    return buffer.getvalue()


def _from_parquet(path: Path, parameters: tuple[str, ...]) -> Table:
    pyarrow, parquet = _pyarrow()
    try:
        content = parquet.read_table(path)
    except pyarrow.ArrowException as error:
        raise StoreError(f"{path} could not be read as Parquet: {str(error).splitlines()[0]}.") from error
    columns = {
        name: content[name].to_pylist() if name == "reason" else content[name].to_numpy()
        for name in content.column_names
    }
    return _from_columns(columns, parameters, path)


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise InputError(
            'expected pyarrow to be installed for Parquet files; try: pip install "unle[parquet]"'
        ) from None
    return pyarrow, parquet
