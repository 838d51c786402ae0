"""The exceptions a user can catch, and the outcomes a computation can have.

Three kinds of trouble, never mixed:

* a wrong *argument* is an `InputError`, raised before anything is traced or simulated, and worded
  "expected ...; got ...; try ...";
* bad *numbers* during a computation are an `Outcome` carried in the result, whose value is the message;
* a *file* that cannot be read or written is a `StoreError`, one sentence that names the file.

`UnleError` catches all of the exceptions at once. Each also derives from the standard exception of its
kind, so that `except ValueError` does what one expects.

Example:
    >>> from unle.errors import InputError
    >>> try:
    ...     raise InputError("expected 2 parameters; got 3; try prior.sample(n)")
    ... except ValueError as error:
    ...     print(error)
    expected 2 parameters; got 3; try prior.sample(n)
"""

import enum
import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

__all__ = ["FitError", "InputError", "Outcome", "SimulationError", "StoreError", "UnleError", "UnleWarning"]
# Packages whose lines are not the user's: a warning is shown with the first line outside of them.
SKIPPED_PACKAGES = {"unle", "equinox", "contextlib", "functools", "jaxtyping", "beartype"}

P = ParamSpec("P")
R = TypeVar("R")


class UnleError(Exception):
    """Base class of every exception that the library raises on purpose.

    Example:
        >>> import unle
        >>> try:
        ...     unle.Prior.uniform(low=[1.0], high=[0.0])
        ... except unle.UnleError as error:
        ...     print(type(error).__name__)
        InputError
    """


class InputError(UnleError, ValueError):
    """An argument is wrong: a shape, a bound, a NaN, a name.

    Example:
        >>> import unle
        >>> issubclass(unle.InputError, ValueError)
        True
    """


class FitError(UnleError, RuntimeError):
    """A fit could not produce anything usable, and no automatic remedy was left.

    Example:
        >>> import unle
        >>> issubclass(unle.FitError, RuntimeError)
        True
    """


class SimulationError(UnleError, RuntimeError):
    """Simulations could not be run: the executor broke, or takes no more work.

    Example:
        >>> import unle
        >>> issubclass(unle.SimulationError, RuntimeError)
        True
    """


class StoreError(UnleError, OSError):
    """A file or a run directory is missing, damaged, tampered with, or belongs to something else.

    Example:
        >>> import unle
        >>> issubclass(unle.StoreError, OSError)
        True
    """


class UnleWarning(UserWarning):
    """The computation goes on, but its result deserves a second look.

    Example:
        >>> import unle, warnings
        >>> warnings.simplefilter("error", unle.UnleWarning)  # stop at the first one  # doctest: +SKIP
    """


def warn_user(message: str) -> None:
    """Warn the user; the line of code that is shown with it is the user's own."""
    level, frame = 1, sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] in SKIPPED_PACKAGES:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, UnleWarning, stacklevel=level)


def other_names(example: str, **ours: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Answer keywords that a function does not have, such as those of other libraries, with the name that it has here.

    Args:
        example: a call as it should be.
        **ours: the name of the argument here, by its name elsewhere.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        expected = [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            check_names(kwargs, expected, ours, example)
            return function(*args, **kwargs)

        return checked

    return decorate


def no_attribute(owner: Any, name: str, elsewhere: Mapping[str, str]) -> AttributeError:
    """Return the error for an attribute that an object does not have, with ours for one of another library.

    Example:
        >>> str(no_attribute([], "add", {"add": "things.append(thing)"}))
        "'list' object has no attribute 'add'; try things.append(thing)"
    """
    hint = f"; try {elsewhere[name]}" if name in elsewhere else ""
    return AttributeError(f"'{type(owner).__name__}' object has no attribute {name!r}{hint}")


def check_names(names: Iterable[str], expected: Sequence[str], ours: Mapping[str, str], example: str) -> None:
    """Refuse keywords that are not expected, with our name for one that has another name elsewhere."""
    for theirs in names:
        if theirs not in expected:
            wanted = f"`{ours[theirs]}`" if ours.get(theirs) in expected else f"keywords among {', '.join(expected)}"
            raise InputError(f"expected {wanted}; got `{theirs}`; try {example}.")


class Outcome(enum.Enum):
    """How a computation ended; the value is the message."""

    CONVERGED = "Converged."
    BUDGET_SPENT = "Stopped because the budget of steps was spent; more steps may improve the result."
    RECOVERED = "Diverged at some point, went back to the last good state with smaller steps, and finished."
    DIVERGED = "Diverged and could not be recovered; do not use the result."

    @property
    def usable(self) -> bool:
        """Whether the result may be used at all."""
        return self is not Outcome.DIVERGED

    def __str__(self) -> str:
        """Return the message."""
        return self.value
