"""Distributions as plain data: a numpyro distribution written as JSON and built again, without pickle.

A distribution is described by the name of its class and the arguments of its constructor,

    {"family": "Normal", "arguments": {"loc": [0.0, 1.0], "scale": 2.0}},

and arguments may themselves be distributions (`Independent`, truncations, mixtures) or transforms. Only
classes that numpyro itself exports are written and read, so that a file can never name code to run.
"""

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import distributions as dist
from numpyro.distributions import constraints, transforms
from numpyro.distributions.util import lazy_property

from unle.errors import InputError

# Where a constructor's argument is kept under another name.
_KEPT_AS = {
    (dist.ExpandedDistribution, "batch_shape"): "_batch_shape",
    (dist.TransformedDistribution, "base_distribution"): "base_dist",
    (dist.MixtureGeneral, "support"): "_support",
}


def describe(distribution: dist.Distribution) -> dict[str, Any]:
    """Write a distribution as a JSON-able dictionary.

    Raises:
        InputError: naming the class, when it is not one of numpyro's or cannot be described by its arguments.
    """
    return _describe(distribution, whole=type(distribution).__name__)


def build(spec: Any) -> dist.Distribution:
    """Build the distribution that `describe` wrote."""
    try:
        built = _build(spec)
    except (KeyError, TypeError, ValueError, AssertionError) as error:
        raise InputError(f"expected the description of a numpyro distribution; got {spec!r} ({error}).") from error
    if not isinstance(built, dist.Distribution):
        raise InputError(f"expected the description of a numpyro distribution; got {spec!r}.")
    return built


def _describe(value: Any, *, whole: str) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return np.asarray(value).tolist()
    if isinstance(value, tuple | list):
        return [_describe(item, whole=whole) for item in value]
    home = _home(type(value))
    if home is None:
        raise InputError(
            f"cannot save a prior that holds a {type(value).__name__} (in {whole}); "
            "expected numpyro's own distributions; try a list of those, one per block of parameters."
        )
    return {home: type(value).__name__, "arguments": _arguments(value, whole=whole)}


def _home(kind: type) -> str | None:
    """Return the word under which a class is written, or None if it is not a public class of numpyro."""
    for word, module, parent in _HOMES:
        if issubclass(kind, parent) and getattr(module, kind.__name__, None) is kind:
            return word
    return None


_HOMES = (
    ("family", dist, dist.Distribution),
    ("transform", transforms, transforms.Transform),
)


def _arguments(value: Any, *, whole: str) -> dict[str, Any]:
    kind, arguments = type(value), {}
    for name, parameter in inspect.signature(kind).parameters.items():
        if name == "validate_args" or isinstance(getattr(kind, name, None), lazy_property):
            continue  # a lazy property restates another argument, as a covariance does scale_tril
        kept = _KEPT_AS.get((kind, name), name)
        held = getattr(value, kept, getattr(value, "_" + kept, parameter.default))
        if isinstance(held, constraints.Constraint):
            if held == parameter.default or held == getattr(kind, name, None):
                continue
            raise InputError(f"cannot save a prior whose {kind.__name__} has the {name} {held} (in {whole}).")
        if held is parameter.default or held is None:
            continue
        arguments[name] = _describe(held, whole=whole)
    return arguments


def _build(spec: Any) -> Any:
    if isinstance(spec, list):
        items = [_build(item) for item in spec]
        numeric = all(isinstance(item, int | float | jax.Array) for item in items)
        return jnp.asarray(np.asarray(spec)) if numeric and items else items
    if not isinstance(spec, dict):
        return spec
    for word, module, parent in _HOMES:
        if word in spec:
            kind = getattr(module, spec[word], None)
            if not (isinstance(kind, type) and issubclass(kind, parent) and _home(kind) == word):
                raise KeyError(f"no {word} called {spec[word]!r} in numpyro")
            arguments = {name: _build(item) for name, item in spec["arguments"].items()}
            if kind is dist.ExpandedDistribution:
                arguments["batch_shape"] = tuple(spec["arguments"]["batch_shape"])
            return kind(**arguments)
    raise KeyError("neither a family nor a transform")
