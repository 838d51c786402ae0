"""Numbers as users have them: lists, NumPy, pandas, xarray, PyTorch and JAX arrays, and whole numbers written 1e3.

What comes from outside passes through `as_array`, `as_count` or `as_seed` once.  No library is imported here: objects
are recognised by what they offer.  `brief` is for the way back: a short text about settings.
"""

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unle.errors import InputError

__all__ = [
    "as_array",
    "as_count",
    "as_seed",
    "brief",
    "column_names",
    "entry_names",
    "in_order",
    "name_of_entry",
    "with_names",
]

LARGEST_COUNT = 2**31 - 1
SEEDS = range(-(2**63), 2**63)  # what a key of JAX is made from


def as_array(values: Any, name: str) -> np.ndarray:
    """Return numbers in any container as a NumPy array of type float64.

    Args:
        values: an array, a list, a table of pandas, an object of xarray, a tensor of PyTorch (also one that requires a
            gradient), or a dictionary of columns. What pandas calls missing, and what a mask of NumPy hides, is NaN.
        name: of the argument, for the message.

    Raises:
        InputError: it holds something else than real numbers.

    Example:
        >>> from unle.arrays import as_array
        >>> as_array({"a": [1, 2], "b": [3, 4]}, "theta").tolist()
        [[1.0, 3.0], [2.0, 4.0]]
    """
    try:
        array = np.asarray(_on_host(values))
        if array.dtype.kind in "cmM":  # NumPy would drop imaginary parts, and take dates for nanoseconds
            raise TypeError
        return np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError, RuntimeError, NotImplementedError):
        raise InputError(f"expected `{name}` as an array of numbers; got {_what_is_odd(values)}.") from None


def _what_is_odd(values: Any) -> str:
    """Say what in the values is no real number, as far as one can tell, and what to try."""
    kind = type(values).__name__
    if isinstance(values, str | os.PathLike):  # the name of a file, most likely
        return f"{str(values)!r}; try np.loadtxt(...)"
    if isinstance(values, list | tuple) and all(isinstance(row, list | tuple) for row in values):
        lengths = {len(row) for row in values}
        if len(lengths) > 1:
            return f"a {kind} of rows with {min(lengths)} to {max(lengths)} numbers; try rows of one length"
    table: Any = values
    for label in column_names(values):
        try:
            as_array(table[label], label)
        except InputError:
            return f"a {kind} whose column {label!r} holds something else; try leaving it out, or a code for it"
    dtype = getattr(values, "dtype", None)
    return kind + (f" of {dtype}" if dtype is not None else "") + "; try real numbers, such as np.asarray(..., float)"


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


def entry_names(x: Any) -> tuple[str, ...]:
    """Return the names of the entries of a data vector, or of rows of them; () if they have none.

    Example:
        >>> from unle.arrays import entry_names
        >>> entry_names({"mean": 0.1, "sd": 2.0})
        ('mean', 'sd')
    """
    if hasattr(x, "dims") and len(x.dims) == 1:  # a DataArray
        labels = x.coords[x.dims[0]].values.tolist() if x.dims[0] in x.coords else ()
    elif hasattr(x, "index") and hasattr(x, "iloc") and not hasattr(x, "columns"):  # a Series
        labels = x.index
    else:
        return column_names(x)
    return tuple(labels) if all(isinstance(label, str) for label in labels) else ()


def in_order(x_o: Any, names: Sequence[str]) -> np.ndarray:
    """Return an observation as an array, its entries in the order of the simulations' where both have names.

    Args:
        x_o: one data vector, or rows of them.
        names: of the entries of the simulations; may be empty.

    Raises:
        InputError: it is no array of numbers, or has other names than the simulations.

    Example:
        >>> from unle.arrays import in_order
        >>> in_order({"sd": 2.0, "mean": 0.1}, ["mean", "sd"]).tolist()
        [0.1, 2.0]
    """
    if isinstance(x_o, Mapping) and any(np.ndim(part) for part in x_o.values()) and not set(x_o) >= set(names):
        x_o = _entry_by_entry(x_o)
    table: Any = x_o
    if names and hasattr(table, "iloc") and np.shape(table)[1:] == (1,) and set(table.index) == set(names):
        x_o = table.iloc[:, 0]  # a table of one column, whose rows are the entries
    array, own = as_array(x_o, "x_o"), entry_names(x_o)
    if not own or not names or own == tuple(names):
        return array
    if sorted(own) != sorted(names):
        missing, unknown = ([n for n in these if n not in others] for these, others in ((names, own), (own, names)))
        parts = [f"it lacks {_listed(missing)}"] * bool(missing) + [f"it has {_listed(unknown)}"] * bool(unknown)
        raise InputError(
            f"expected x_o with the names that the simulations have, {_listed(names)}; {' and '.join(parts)}; "
            "try these names, or numbers without names in this order."
        )
    return array[..., [own.index(name) for name in names]]


def _entry_by_entry(fields: Mapping[str, Any]) -> dict[str, float]:
    """Return what a simulator would return as a dictionary of arrays, with a name for each number."""
    entries = {}
    for name, part in fields.items():
        part = as_array(part, name)
        for place in np.ndindex(*part.shape):
            entries[name_of_entry(name, place, part.shape)] = part[place]
    return entries


def name_of_entry(name: str, place: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """Return the name of one number of a named array: x, or x[0], x[1], ...

    Example:
        >>> from unle.arrays import name_of_entry
        >>> name_of_entry("x", (1,), (3,))
        'x[1]'
    """
    return name if shape in ((), (1,)) else f"{name}[{', '.join(map(str, place))}]"


def with_names(rows: np.ndarray, names: Sequence[str]) -> Any:
    """Return rows of x as a dictionary of columns; as they are, if there are no names."""
    return {name: rows[:, i] for i, name in enumerate(names)} if names else rows


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def as_count(n: Any, what: str = "draws", name: str = "n") -> int:
    """Return a positive whole number, also from a float such as 1e3.

    Args:
        n: the number.
        what: is counted, for the message.
        name: of the argument, for the message.

    Example:
        >>> from unle.arrays import as_count
        >>> as_count(1e3)
        1000
    """
    example = 10 if name == "rounds" else 1000
    try:
        value = float(n)
    except (TypeError, ValueError):
        value = math.nan
    if isinstance(n, bool) or not math.isfinite(value) or value != int(value):
        raise InputError(f"expected a whole number of {what}; got {name} = {n!r}; try {name}={example}.")
    if value < 1:
        raise InputError(f"expected a positive number of {what}; got {name} = {n!r}; try {name}={example}.")
    if value > LARGEST_COUNT:
        raise InputError(f"expected at most {LARGEST_COUNT:,} {what}; got {name} = {n!r}; try {name}={example}.")
    return int(value)


def as_seed(seed: Any) -> int:
    """Return a seed as a whole number: there is no default source of randomness.

    Example:
        >>> from unle.arrays import as_seed
        >>> as_seed(7)
        7
    """
    try:
        value = int(seed)
        whole = bool(value == seed)
    except (TypeError, ValueError, OverflowError):
        value, whole = 0, False
    if not whole or value not in SEEDS:
        raise InputError(f"expected a whole number as seed; got {seed!r}; try seed=0.")
    return value


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
        tensor = values.detach().cpu()
        return (tensor.float() if str(getattr(tensor, "dtype", "")) == "torch.bfloat16" else tensor).numpy()
    if isinstance(values, np.ma.MaskedArray):
        return np.ma.filled(values.astype(np.float64), np.nan)
    if hasattr(values, "isna") and hasattr(values, "to_numpy"):  # of pandas, whose NA is no number
        return values.to_numpy(na_value=np.nan)
    if isinstance(values, list | tuple) and any(hasattr(item, "detach") for item in values):
        return [_on_host(item) for item in values]
    return values
