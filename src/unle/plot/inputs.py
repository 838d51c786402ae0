"""What a figure is asked to draw, checked."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from unle.errors import InputError


def as_draws(values: Any, name: str, dim: int | None = None) -> Float[np.ndarray, "n dim"]:
    """Return draws as an array of shape (n, d).

    Args:
        values: `Draws`, or an array with one draw per row.
        name: of the argument, for the message.
        dim: the number of columns that they must have, if known.

    Raises:
        InputError: the shape is another, or a value is not finite.
    """
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        raise InputError(f"expected `{name}` as an array of draws; got {type(values).__name__}.") from None
    if array.ndim != 2 or 0 in array.shape:
        raise InputError(f"expected `{name}` of shape (n, d); got {array.shape}; try one draw per row.")
    if dim is not None and array.shape[1] != dim:
        raise InputError(f"expected `{name}` with {dim} columns; got {array.shape[1]}.")
    if not np.isfinite(array).all():
        raise InputError(f"expected finite values in `{name}`; got NaN or inf.")
    return array


def as_names(names: Sequence[str] | None, dim: int) -> tuple[str, ...]:
    """Return one name per parameter, made up if there are none."""
    if names is None:
        return tuple(f"theta_{i + 1}" for i in range(dim))
    if len(names) != dim:
        raise InputError(f"expected {dim} names, one per parameter; got {len(names)}.")
    return tuple(names)


def plain_label(name: str) -> str:
    """Return a name in which matplotlib sees no mathematics."""
    return name.replace("$", r"\$")


def span(*arrays: np.ndarray, share: float = 0.05, tail: float = 0.0) -> tuple[float, float]:
    """Return limits of an axis that holds all arrays.

    Args:
        arrays: the values to show.
        share: of the range, left free on either side.
        tail: share of each array that may fall outside, on either side; heavy tails would otherwise squash the rest.
    """
    low = min(float(np.quantile(a, tail)) for a in arrays)
    high = max(float(np.quantile(a, 1 - tail)) for a in arrays)
    room = share * (high - low) if high > low else max(abs(low), 1.0) * share
    return low - room, high + room
