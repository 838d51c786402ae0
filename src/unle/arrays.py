"""Numbers as users have them: lists, NumPy, pandas, xarray, PyTorch and JAX arrays, and whole numbers written 1e3.

What comes from outside passes through `as_array` or `as_count` once.  No library is imported here: objects are
recognised by what they offer.  `brief` is for the way back: a short text about settings.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from unle.errors import InputError

__all__ = ["as_array", "as_count", "brief", "column_names"]


def as_array(values: Any, name: str) -> np.ndarray:
    """Return numbers in any container as a NumPy array of type float64.

    Args:
        values: an array, a list, a table of pandas, an object of xarray, a tensor of PyTorch (also one that requires a
            gradient), or a dictionary of columns.
        name: of the argument, for the message.

    Raises:
        InputError: it holds something else than numbers.

    Example:
        >>> from unle.arrays import as_array
        >>> as_array({"a": [1, 2], "b": [3, 4]}, "theta").tolist()
        [[1.0, 3.0], [2.0, 4.0]]
    """
    try:
        return np.asarray(_on_host(values), dtype=np.float64)
    except (TypeError, ValueError, RuntimeError):
        kind = type(values).__name__
        raise InputError(f"expected `{name}` as an array of numbers; got {kind}; try np.asarray(...).") from None


def column_names(values: Any) -> tuple[str, ...]:
    """Return the names of the columns of a table, or () if it has none."""
    labels: Any = ()
    if isinstance(values, Mapping):  # a Dataset of xarray is one
        labels = values
    elif hasattr(values, "columns"):
        labels = values.columns
    elif hasattr(values, "dims") and hasattr(values, "coords"):  # a DataArray
        last = values.dims[-1] if len(values.dims) > 1 else None
        labels = values.coords[last].values.tolist() if last in values.coords else ()
    elif hasattr(values, "names"):  # `Draws`
        labels = values.names
    names = tuple(labels)
    return names if all(isinstance(name, str) for name in names) else ()


def as_count(n: Any, what: str = "draws") -> int:
    """Return a positive whole number, also from a float such as 1e3.

    Args:
        n: the number.
        what: is counted, for the message.

    Raises:
        InputError: it is not whole, not positive, or not a number.

    Example:
        >>> from unle.arrays import as_count
        >>> as_count(1e3)
        1000
    """
    try:
        value = float(n)
    except (TypeError, ValueError):
        value = math.nan
    if isinstance(n, bool) or not math.isfinite(value) or value != int(value):
        raise InputError(f"expected a whole number of {what}; got n = {n!r}; try n=1000.")
    if value < 1:
        raise InputError(f"expected a positive number of {what}; got n = {n!r}; try n=1000.")
    return int(value)


def brief(settings: Any) -> str:
    """Return a one-line `repr` of a dataclass that shows those of its fields that differ from their defaults.

    Example:
        >>> from unle.arrays import brief
        >>> from unle.posterior import TemperedSmc
        >>> brief(TemperedSmc(particles=8000))
        'TemperedSmc(particles=8000)'
    """
    parts = []
    for field in dataclasses.fields(settings):
        text = _text(getattr(settings, field.name))
        if field.default is dataclasses.MISSING or text != _text(field.default):
            parts.append(f"{field.name}={text}")
    return f"{type(settings).__name__}({', '.join(parts)})"


def _text(value: Any) -> str:
    if getattr(type(value).__repr__, "__module__", "").startswith("unle."):  # it has a short form of its own
        return repr(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return brief(value)
    shape = getattr(value, "shape", ())
    return f"array of shape {shape}" if shape else getattr(value, "__name__", None) or repr(value)


def _on_host(values: Any) -> Any:
    if isinstance(values, Mapping):
        return np.stack([np.asarray(_on_host(column), dtype=np.float64) for column in values.values()], axis=-1)
    if hasattr(values, "detach"):  # a tensor of PyTorch, which refuses to become an array where it has a gradient
        return values.detach().cpu().numpy()
    if isinstance(values, list | tuple) and any(hasattr(item, "detach") for item in values):
        return [_on_host(item) for item in values]
    return values
