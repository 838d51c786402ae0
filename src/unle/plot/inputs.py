"""What a figure is asked to draw, checked."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from unle.arrays import as_array, column_names
from unle.errors import InputError
from unle.plot.style import EXACT, FAINT, LEARNED, THIRD

COLOURS = (LEARNED, EXACT, THIRD, "#CC79A7", "#E69F00", "#56B4E9")  # of several sets of draws, in turn
PRIOR_DRAWS = 10_000  # that stand for a `Prior`


def as_draws(values: Any, name: str, dim: int | None = None) -> Float[np.ndarray, "n dim"]:
    """Return draws as a finite array of shape (n, d).

    They are `Draws`, ArviZ data, a `Prior` (which is drawn from), a table, or an array with one draw per row; `dim` is
    the number of columns that they must have, if known.
    """
    array = as_array(_drawn(values), name)
    if array.ndim != 2 or 0 in array.shape:
        raise InputError(f"expected `{name}` of shape (n, d); got {array.shape}; try one draw per row.")
    if dim is not None and array.shape[1] != dim:
        raise InputError(f"expected `{name}` with {dim} columns; got {array.shape[1]}.")
    if not np.isfinite(array).all():
        raise InputError(f"expected finite values in `{name}`; got NaN or inf.")
    return array


class DrawSet(NamedTuple):
    """Draws of the parameters that a figure shows."""

    values: Float[np.ndarray, "n dim"]  # one draw per row
    label: str  # what they are called in the legend
    colour: str  # of lines and areas


def draw_sets(
    draws: Any,  # one set of draws, a list of several, or a dictionary from labels to them
    names: Sequence[str] | None,  # of the parameters; those that the first set comes with if not given
    *,
    reference: Any = None,  # one more set
    labels: Sequence[str] | None = None,  # of the sets
    colours: Sequence[str] | None = None,  # of the sets
    parameters: Sequence[str] | None = None,  # names of the parameters to show; all by default
) -> tuple[list[DrawSet], tuple[str, ...], list[int]]:
    """Return what a figure shows, the names of all parameters, and the places of those that it shows."""
    several = _several(draws)
    items = list(several.items()) if several else [("draws", draws)]
    items += [] if reference is None else [("reference", reference)]
    if labels is not None and len(labels) < len(items):
        raise InputError(f"expected {len(items)} labels, one for each set of draws; got {len(labels)}.")
    own = names_of(items[0][1], names)
    first = as_draws(items[0][1], "draws")
    every = as_names(own, first.shape[1])
    shown = [_place(name, every) for name in parameters] if parameters is not None else list(range(len(every)))
    found = []
    for k, (label, item) in enumerate(items):
        values = first[:, shown] if k == 0 else _aligned(item, str(label), every, shown, named=own is not None)
        is_prior = type(item).__name__ == "Prior"
        label = "prior" if is_prior and label == "reference" else label
        default = FAINT if is_prior else COLOURS[k % len(COLOURS)]
        colour = colours[k] if colours is not None and k < len(colours) else default
        found.append(DrawSet(values, str(label if labels is None else labels[k]), colour))
    return found, every, shown


def _several(draws: Any) -> dict[Any, Any]:
    """Return several sets of draws by their labels; nothing if it is one set."""
    if isinstance(draws, Mapping) and not hasattr(draws, "data_vars"):
        return dict(draws) if draws and all(_is_set(value) for value in draws.values()) else {}
    if isinstance(draws, list | tuple) and draws and all(_is_set(value) for value in draws):
        return {f"draws {k + 1}": value for k, value in enumerate(draws)}
    return {}


def _is_set(value: Any) -> bool:
    """Return whether something is a set of draws, rather than one row or one column of numbers."""
    return len(getattr(value, "shape", ())) == 2 or any(hasattr(value, name) for name in ("posterior", "log_density"))


def _aligned(values: Any, label: str, every: tuple[str, ...], shown: list[int], *, named: bool) -> np.ndarray:
    """Return the columns that are shown of further draws, in the order of the first ones; they may lack others."""
    own, wanted = names_of(values, None) if named else None, [every[i] for i in shown]
    if own is None or not set(wanted) <= set(own):
        return as_draws(values, label, len(every))[:, shown]
    return as_draws(values, label)[:, [list(own).index(name) for name in wanted]]


def _place(name: str, every: tuple[str, ...]) -> int:
    if name not in every:
        raise InputError(f"expected parameters among {', '.join(every)}; got {name!r}.")
    return every.index(name)


def as_marks(truth: Any, every: tuple[str, ...], shown: list[int], what: str = "truth") -> np.ndarray | None:
    """Return one value for each parameter shown, NaN where there is none; from an array or a dictionary of names."""
    if truth is None:
        return None
    if isinstance(truth, Mapping):
        for name in truth:
            _place(name, every)
        return np.array([float(truth.get(every[i], np.nan)) for i in shown])
    marks = np.atleast_1d(np.squeeze(as_array(truth, what)))
    if marks.shape == (len(shown),) != (len(every),):
        return marks
    return as_draws(marks[None], what, len(every))[0][shown]


def as_limits(limits: Any, every: tuple[str, ...], shown: list[int]) -> list[tuple[float, float] | None]:
    """Return the ends of the axes that the user gave: a `Prior`, a dictionary by name, or one pair per parameter."""
    if limits is None:
        return [None] * len(shown)
    if hasattr(limits, "limits"):  # a Prior
        low, high = limits.limits()
        limits = dict(zip(limits.names, zip(low, high, strict=True), strict=True))
    if isinstance(limits, Mapping):
        pairs = [limits.get(every[i]) for i in shown]
    else:
        pairs = list(limits) if len(limits) == len(shown) else [limits[i] for i in shown if i < len(limits)]
    for pair in pairs:
        if pair is not None and not (len(pair) == 2 and pair[0] < pair[1]):
            raise InputError(f"expected limits as pairs (low, high) with low < high; got {pair}.")
    if len(pairs) != len(shown):
        raise InputError(f"expected limits for {len(shown)} parameters; got {len(pairs)}.")
    return [None if pair is None else (float(pair[0]), float(pair[1])) for pair in pairs]


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
    """Return limits of an axis that holds all arrays, with a share of the range left free on either side.

    `tail` is the share of each array that may fall outside: heavy tails would otherwise squash the rest.
    """
    low = min(float(np.quantile(a, tail)) for a in arrays)
    high = max(float(np.quantile(a, 1 - tail)) for a in arrays)
    room = share * (high - low) if high > low else max(abs(low), 1.0) * share
    return low - room, high + room
