"""What a stored model may be made of: the classes and functions that a file can name.

Names in a model file are looked up here and nowhere else. This makes it safe to open a file from an unknown source: the
worst it can name is a module of this library.

Example:
    >>> import equinox as eqx
    >>> from unle.store.storable_classes import storable
    >>> @storable  # the program that loads the model needs this line too
    ... class Doubled(eqx.Module):
    ...     inner: eqx.nn.Linear
    ...     def __call__(self, x):
    ...         return 2 * self.inner(x)
"""

import dataclasses
import importlib
import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp

from unle.errors import InputError

_ACTIVATIONS = "celu elu gelu leaky_relu log_sigmoid mish relu selu sigmoid softplus swish"
FUNCTIONS: dict[str, Callable] = {
    **{name: getattr(jax.nn, name) for name in _ACTIVATIONS.split()},
    **{"exp": jnp.exp, "sin": jnp.sin, "tanh": jnp.tanh},
    # the default of eqx.nn.MLP is a lambda of its own; recognise that one
    "identity": inspect.signature(eqx.nn.MLP.__init__).parameters["final_activation"].default,
}
"""Functions that a stored model may hold, by name."""

_CLASSES: dict[str, type] = {
    f"equinox.nn:{layer.__name__}": layer
    for layer in (eqx.nn.Identity, eqx.nn.LayerNorm, eqx.nn.Linear, eqx.nn.MLP, eqx.nn.Sequential)
}
RENAMED = {  # classes in older files
    **{"Straight": "NoCorrection", "Bend": "PolynomialMean", "Flex": "NeuralCorrection"},
    **{"TiltedModel": "EnergyModel", "TiltedLikelihood": "EnergyLikelihood", "TiltedTraining": "EnergyTraining"},
}
_OWN_MODULE = re.compile(r"unle(\.[a-z][a-z0-9_]*)+")
_Thing = TypeVar("_Thing", bound=Callable)


class Refusal(Exception):
    """A description names something that must not or cannot be loaded."""


def storable(thing: _Thing) -> _Thing:
    """Allow a class or a function of your own in stored models; usable as a decorator.

    Loading such a model needs the same call first, in the program that loads.

    Args:
        thing: an equinox module class or another dataclass, or a function with a name.

    Returns:
        The same thing.
    """
    name = f"{thing.__module__}:{thing.__qualname__}"
    if "<lambda>" in name:
        raise InputError("expected a function with a name, by which to find it again; got a lambda")
    candidate: Any = thing
    if not isinstance(candidate, type):
        FUNCTIONS[name] = candidate
    elif dataclasses.is_dataclass(candidate):
        _CLASSES[name] = candidate
    else:
        raise InputError(f"expected an equinox module or a dataclass; got the class {thing.__qualname__}")
    return thing


def function_name(value: Any) -> str | None:
    """Return the name under which a function may be stored, or None."""
    return next((name for name, function in FUNCTIONS.items() if function is value), None)


def class_name(cls: type, where: str) -> str:
    """Return the name under which a class may be stored; `where` it is in the tree, for the message."""
    for name, known in _CLASSES.items():
        if known is cls:
            return name
    name = f"{cls.__module__}:{cls.__qualname__}"
    try:
        same_name = find_class(name)
    except Refusal as refusal:
        raise InputError(f"{refusal}, at {where}; try unle.store.storable_classes.storable on it") from refusal
    if same_name is not cls:
        raise InputError(f"expected a class that can be found again by its name; got {name} at {where}")
    return name


def find_class(name: str) -> type:
    """Look a class up by name, among those that may be stored and nowhere else."""
    if name in _CLASSES:
        return _CLASSES[name]
    module_name, _, own_name = name.partition(":")
    # A module of this package is imported when a file names it; the command line is no part of a model.
    if _OWN_MODULE.fullmatch(module_name) and not module_name.startswith("unle.cli"):
        own_name = RENAMED.get(own_name, own_name)
        room = ".".join(module_name.split(".")[:2])
        for place in (module_name, room):  # classes move between the files of a room, which exports them
            try:
                cls = vars(importlib.import_module(place)).get(own_name)
            except ModuleNotFoundError:
                continue
            if isinstance(cls, type) and issubclass(cls, eqx.Module) and cls.__module__.startswith(place):
                return cls
    raise Refusal(f"the class {name!r} is not one that stored models may hold")
