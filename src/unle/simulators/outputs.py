"""What a simulator returned: one vector of numbers, with names if it has them, or the reason why there is none.

Example:
    >>> from unle.simulators.outputs import flatten
    >>> flatten({"mean": 0.5, "counts": [3, 4]})
    (array([0.5, 3. , 4. ]), ('mean', 'counts[0]', 'counts[1]'))
    >>> flatten([1, 2])
    (array([1., 2.]), ())
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

LONGEST_REASON = 200  # characters


class Outcome(NamedTuple):
    """The outcome of one simulation."""

    x: Float[np.ndarray, "dim_x"] | None  # the data vector; None if nothing usable came back
    reason: str  # why the simulation is not valid; the empty string if it is
    seconds: float  # the time it took
    traceback: str | None = None  # of an exception
    names: tuple[str, ...] = ()  # of the entries of x, if the simulator named them
    worker: str = ""  # the process that simulated

    def __reduce__(self):
        """Pickle the bytes of x: five times as fast as pickling a small array."""
        return _outcome, (None if self.x is None else self.x.tobytes(), *self[1:])


def _outcome(content: bytes | None, *others: Any) -> Outcome:
    return Outcome(None if content is None else np.frombuffer(content), *others)


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
        x = np.atleast_1d(_numbers(result))
        if x.ndim != 1 or x.size == 0:
            raise WrongResult(f"wrong shape: expected one data vector; got an array of shape {x.shape}; try .ravel()")
        return x, ()
    rows, names = _join({name: _numbers(value)[None] for name, value in fields.items()})
    return rows[0], names


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
        x = _numbers(result)
        if x.ndim != 2 or len(x) != n or x.size == 0:
            raise WrongResult(f"wrong shape: expected {n} rows, one per row of theta; got shape {x.shape}")
        return x, ()
    parts = {name: _numbers(value) for name, value in fields.items()}
    for name, part in parts.items():
        if part.ndim == 0 or len(part) != n:
            raise WrongResult(f"wrong shape: expected {n} rows in {name!r}, one per row of theta; got {part.shape}")
    return _join(parts)


def explains(simulator: Any) -> bool:
    """Whether a simulator has a method `explain(x)` for data with NaN: it expects to make such data."""
    return getattr(simulator, "explain", None) is not None


def explainer(simulator: Any) -> Callable[[np.ndarray], str]:
    """Return what tells why data with NaN are not valid: the simulator's own method, or `not_finite`."""
    return simulator.explain if explains(simulator) else not_finite


def reason_of(error: BaseException) -> str:
    """Return the kind of an exception and the first line of its message."""
    message = str(error).strip().split("\n")[0]
    reason = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return reason[:LONGEST_REASON]


def not_finite(x: Float[np.ndarray, "dim_x"]) -> str:
    """Return the reason for a data vector that has NaN or infinite entries."""
    bad = np.flatnonzero(~np.isfinite(x))
    return f"not finite: {len(bad)} of {len(x)} values, the first at position {bad[0]}"


def other_names(names: tuple[str, ...], expected: tuple[str, ...]) -> str:
    """Return the reason for data whose names are not the expected ones, or the empty string."""
    if names == expected:
        return ""
    odd = sorted(set(names) ^ set(expected))
    return f"other names: {', '.join(odd)[:120]}" if odd else "other names: the same in another order"


def _numbers(result: Any) -> np.ndarray:
    """Return the result as a new float64 array: a simulator may fill and return the same buffer every time."""
    if result is None:
        raise WrongResult("returned nothing: expected a data vector; try a return statement in the simulator")
    try:
        result = result.detach().cpu().numpy() if hasattr(result, "detach") else result  # a tensor with a gradient
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


def _join(parts: Mapping[Any, np.ndarray]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Put named arrays with one row per simulation beside one another."""
    names = [entry for name, part in parts.items() for entry in _entry_names(str(name), part.shape[1:])]
    if not names:
        raise WrongResult("wrong shape: expected some data; got an empty dictionary")
    return np.concatenate([part.reshape(len(part), -1) for part in parts.values()], axis=1), tuple(names)


def _entry_names(name: str, shape: tuple[int, ...]) -> list[str]:
    if shape in ((), (1,)):
        return [name]
    return [f"{name}[{', '.join(map(str, index))}]" for index in np.ndindex(*shape)]
