"""What a simulator returned, as one vector of numbers, with names if it has them.

Example:
    >>> from unle.simulators.outputs import flatten
    >>> flatten({"mean": 0.5, "counts": [3, 4]})
    (array([0.5, 3. , 4. ]), ('mean', 'counts[0]', 'counts[1]'))
    >>> flatten([1, 2])
    (array([1., 2.]), ())
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

LONGEST_REASON = 200


class WrongResult(Exception):
    """The simulator returned something that is not data; the message is the reason of an invalid row."""


def flatten(result: Any) -> tuple[Float[np.ndarray, "dim_x"], tuple[str, ...]]:
    """Return the result of one simulation as a vector, and the names of its entries.

    Args:
        result: a number, a vector, or a dictionary of numbers and arrays, in the order of its keys; a named tuple is
            taken as a dictionary.

    Returns:
        The vector, and one name per entry; no names for a plain vector.

    Raises:
        WrongResult: it is something else.
    """
    fields = _fields(result)
    if fields is None:
        x = numbers(result)
        x = x[None] if x.ndim == 0 else x
        if x.ndim != 1 or x.size == 0:
            raise WrongResult(f"wrong shape: expected one data vector; got an array of shape {x.shape}; try .ravel()")
        return x, ()
    parts, names = [], []
    for name, value in fields.items():
        part = numbers(value)
        parts.append(part.ravel())
        names += _entry_names(str(name), part.shape)
    if not names:
        raise WrongResult("wrong shape: expected some data; got an empty dictionary")
    return np.concatenate(parts), tuple(names)


def flatten_rows(result: Any, n: int) -> tuple[Float[np.ndarray, "n dim_x"], tuple[str, ...]]:
    """Return the result of `n` simulations as a matrix, and the names of its columns.

    Args:
        result: a matrix with one row per simulation, or a dictionary of arrays whose first axis has length `n`.
        n: how many rows there must be.

    Raises:
        WrongResult: it is something else.
    """
    fields = _fields(result)
    if fields is None:
        x = numbers(result)
        if x.ndim != 2 or len(x) != n or x.size == 0:
            raise WrongResult(f"wrong shape: expected {n} rows, one per row of theta; got shape {x.shape}")
        return x, ()
    parts, names = [], []
    for name, value in fields.items():
        part = numbers(value)
        if part.ndim == 0 or len(part) != n:
            raise WrongResult(f"wrong shape: expected {n} rows in {name!r}, one per row of theta; got {part.shape}")
        parts.append(part.reshape(n, -1))
        names += _entry_names(str(name), part.shape[1:])
    if not names:
        raise WrongResult("wrong shape: expected some data; got an empty dictionary")
    return np.concatenate(parts, axis=1), tuple(names)


def numbers(result: Any) -> np.ndarray:
    """Return the result as a new float64 array: a simulator may fill and return the same buffer every time."""
    if result is None:
        raise WrongResult("returned nothing: expected a data vector; try a return statement in the simulator")
    try:
        return np.array(result, dtype=np.float64)
    except (TypeError, ValueError) as error:
        kind = type(result).__name__
        raise WrongResult(f"not numbers: expected numbers; got {kind} ({error})"[:LONGEST_REASON]) from None


def _fields(result: Any) -> Mapping | None:
    if isinstance(result, Mapping):
        return result
    if isinstance(result, tuple) and hasattr(result, "_asdict"):
        return result._asdict()  # pyright: ignore[reportAttributeAccessIssue]  (checked in the condition)
    return None


def _entry_names(name: str, shape: tuple[int, ...]) -> list[str]:
    if shape in ((), (1,)):
        return [name]
    return [f"{name}[{', '.join(map(str, index))}]" for index in np.ndindex(*shape)]
