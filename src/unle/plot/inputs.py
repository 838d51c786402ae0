"""What a figure is asked to draw, checked."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from unle.arrays import as_array, column_names
from unle.errors import InputError

PRIOR_DRAWS = 10_000  # that stand for a `Prior`


def as_draws(values: Any, name: str, dim: int | None = None) -> Float[np.ndarray, "n dim"]:
    """Return draws as an array of shape (n, d).

    Args:
        values: `Draws`, ArviZ data, a `Prior` (which is drawn from), a table, or an array with one draw per row.
        name: of the argument, for the message.
        dim: the number of columns that they must have, if known.

    Raises:
        InputError: the shape is another, or a value is not finite.
    """
    array = as_array(_drawn(values), name)
    if array.ndim != 2 or 0 in array.shape:
        raise InputError(f"expected `{name}` of shape (n, d); got {array.shape}; try one draw per row.")
    if dim is not None and array.shape[1] != dim:
        raise InputError(f"expected `{name}` with {dim} columns; got {array.shape[1]}.")
    if not np.isfinite(array).all():
        raise InputError(f"expected finite values in `{name}`; got NaN or inf.")
    return array


def names_of(values: Any, names: Sequence[str] | None) -> Sequence[str] | None:
    """Return the names given, or else those that the draws come with, or None."""
    return names if names is not None else column_names(_drawn(values)) or None


def _drawn(values: Any) -> Any:
    """Return draws of a prior, the draws in ArviZ data, and anything else as it is."""
    if isinstance(values, np.ndarray):
        return values
    from unle.posterior import Draws  # here: both need JAX
    from unle.space import Prior

    if isinstance(values, Prior):
        return Draws(values.sample(PRIOR_DRAWS)[None], values.names, np.zeros((1, 0)), 0)
    is_arviz = hasattr(values, "data_vars") or (hasattr(values, "posterior") and not hasattr(values, "columns"))
    return Draws.from_arviz(values) if is_arviz else values


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
