"""Blocks: a user's distribution, checked and made ready to be part of a prior.

A prior needs a proper density over a vector of real numbers. What has none is refused here, in one sentence,
rather than by a NaN inside a sampler.
"""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from numpyro import distributions as dist

from unle.errors import InputError
from unle.space.bijections import AbstractBijection

# Distributions with draws or a log_prob but no normalised density: atoms, improper ones, censored data.
_WITHOUT_DENSITY = (dist.Delta, dist.ImproperUniform, dist.Unit, dist.MaskedDistribution)
_WORDS_WITHOUT_DENSITY = (
    "Hurdle",
    "Censored",
)  # families of classes, which differ between numpyro's versions


def size_of(block: dist.Distribution) -> int:
    """Return the number of parameters in a block."""
    return int(np.prod(block.shape(), dtype=int))


def as_block(distribution: dist.Distribution) -> dist.Distribution:
    """Check a user's distribution and return a copy that is ready for use.

    The copy has event shape () or (k,), holds float arrays, and makes no checks of its own at run time.

    Raises:
        InputError: it is discrete, has no density, has the wrong shape, or holds a NaN or an infinity.
    """
    name = type(distribution).__name__
    for part in _nested(distribution):
        named = any(word in type(part).__name__ for word in _WORDS_WITHOUT_DENSITY)
        if named or isinstance(part, _WITHOUT_DENSITY):
            raise InputError(f"expected a distribution with a density; got {type(part).__name__}, which has none.")
    if distribution.support is None:
        raise InputError(f"expected a distribution with a known support; {name} declares none.")
    if distribution.is_discrete:
        raise InputError(f"expected continuous parameters; got the discrete distribution {name}.")
    shape = distribution.shape()
    if len(shape) > 1:
        raise InputError(
            f"expected draws of shape () or (k,); got {shape} from {name}; "
            "try a list of distributions, one per block of parameters."
        )
    if 0 in shape:
        raise InputError(f"expected at least one parameter; got {name} with draws of shape {shape}.")
    _check_parameters(distribution)
    _check_mixture(distribution)
    block = distribution.to_event(1) if distribution.batch_shape else distribution
    block = jax.tree.map(_as_float, block)
    for part in _nested(block):  # else numpyro warns, and waits for the device, at points outside the support
        part._validate_args = False
    return block


def _nested(distribution: dist.Distribution) -> Iterator[dist.Distribution]:
    """Yield a distribution and those it is made of."""
    yield distribution
    for value in vars(distribution).values():
        for item in value if isinstance(value, list | tuple) else [value]:
            if isinstance(item, dist.Distribution):
                yield from _nested(item)


def _as_float(leaf: Any) -> Any:
    array = np.asarray(leaf)
    whole = array.ndim > 0 and not np.issubdtype(array.dtype, np.floating)  # indices of a permutation, masks
    return jax.device_put(array if whole else array.astype(jnp.result_type(float)))  # compiles nothing


def _check_parameters(distribution: dist.Distribution) -> None:
    for part in _nested(distribution):
        for name, value in part.get_args().items():
            if value is not None and not np.all(np.isfinite(np.asarray(value))):
                raise InputError(
                    f"expected finite parameters of {type(part).__name__}; got {name} = {np.asarray(value)}."
                )
        try:
            part.validate_args(strict=False)
        except ValueError as error:
            raise InputError(f"expected valid parameters; numpyro says: {error}") from error


def _check_mixture(distribution: dist.Distribution) -> None:
    for part in _nested(distribution):
        if isinstance(part, dist.MixtureGeneral):
            first, *others = [component.support for component in part.component_distributions]
            if part._support is None and any(other != first for other in others):
                raise InputError(
                    "expected a mixture whose components share one support; got "
                    f"{', '.join(str(support) for support in (first, *others))}."
                )


def check_density(block: dist.Distribution, bijection: AbstractBijection) -> None:
    """Trace one draw and its density, without computing them: a distribution may turn out to lack one."""
    try:
        draw = jax.eval_shape(lambda: block.sample(jr.key(0)))
        jax.eval_shape(bijection.log_density, jax.ShapeDtypeStruct(block.shape(), jnp.result_type(float)))
    except (NotImplementedError, ImportError) as error:
        raise InputError(
            f"expected a distribution with draws and a density; {type(block).__name__} lacks one of them."
        ) from error
    assert draw.shape == block.shape()
