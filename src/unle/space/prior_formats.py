"""Distributions that a prior is made of: checked, and converted from scipy.stats, PyTorch (sbi's too) and JSON files.

**Checks**: a prior needs a proper density over a vector of real numbers.  What has none is refused by `as_block`, in
one sentence, rather than by a NaN inside a sampler.

**Objects** are turned into the numpyro distributions that a prior is made of.  They are recognised by the module of
their class: neither PyTorch nor sbi is imported.

**Plain data**: a numpyro distribution is written as JSON and built again, without pickle.  It is described by the name
of its class and the arguments of its constructor,

    {"family": "Normal", "arguments": {"loc": [0.0, 1.0], "scale": 2.0}},

and arguments may themselves be distributions (`Independent`, truncations, mixtures) or transforms.  Only classes that
numpyro itself exports are written and read, so that a file can never name code to run.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from numpyro import distributions as dist
from numpyro.distributions import constraints, transforms
from numpyro.distributions.util import lazy_property

from unle.arrays import as_array
from unle.errors import InputError
from unle.space.bijections import AbstractBijection

EXAMPLE = "try Prior(numpyro.distributions.Uniform(low, high)) or Prior.uniform(low, high)."
INDEPENDENT = (
    "a parameter of a prior cannot depend on another one; try independent ones, and combine them in the simulator: "
    "effect = mean + spread * z, with z ~ Normal(0, 1)."
)
MATRIX = (
    "for a matrix try numbers that do not restrict one another, such as partial correlations between -1 and 1, and put "
    "them together in the simulator."
)
_HOMES = (
    ("family", dist, dist.Distribution),
    ("transform", transforms, transforms.Transform),
)

# Distributions with draws or a log_prob but no normalised density: atoms, improper ones, censored data.
_WITHOUT_DENSITY = (dist.Delta, dist.ImproperUniform, dist.Unit, dist.MaskedDistribution)
_WORDS_WITHOUT_DENSITY = (
    "Hurdle",
    "Censored",
)  # families of classes, which differ between numpyro's versions


def as_block(distribution: dist.Distribution) -> dist.Distribution:
    """Check a user's distribution and return a copy that is ready for use.

    The copy has event shape () or (k,), holds float arrays, and makes no checks of its own at run time.
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
        advice = MATRIX if distribution.event_dim > 1 else "try a list of distributions, one per block of parameters."
        raise InputError(f"expected draws of shape () or (k,); got {shape} from {name}; {advice}")
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
            array = np.asarray(value)
            if array.dtype.kind in "US":
                raise InputError(f"expected numbers in {type(part).__name__}; got {name} = {value!r}; {INDEPENDENT}")
            if value is not None and not np.all(np.isfinite(array)):
                raise InputError(f"expected finite parameters of {type(part).__name__}; got {name} = {array}.")
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


# Where a constructor's argument is kept under another name.
_KEPT_AS = {
    (dist.ExpandedDistribution, "batch_shape"): "_batch_shape",
    (dist.TransformedDistribution, "base_distribution"): "base_dist",
    (dist.MixtureGeneral, "support"): "_support",
}


def as_numpyro(distribution: Any) -> list[dist.Distribution]:
    """Return the numpyro distributions, one per independent block, that a user's distribution stands for."""
    if isinstance(distribution, dist.Distribution):
        return [distribution]
    if own := getattr(distribution, "distributions", None):  # a `Prior`: its blocks
        return list(own)
    classes = type(distribution).__mro__
    if any(kind.__module__.startswith("scipy.stats") for kind in classes):
        return [_from_scipy(distribution)]
    if any(kind.__module__.split(".")[0] == "torch" for kind in classes):
        return _from_torch(distribution)
    is_function = callable(distribution) and not isinstance(distribution, type)
    got, advice = f"a {type(distribution).__name__}", INDEPENDENT if is_function else EXAMPLE
    if any(kind.__module__.split(".")[0] in ("pymc", "pytensor") for kind in classes):
        got, advice = f"one of PyMC ({got})", "try numpyro's of the same name, or scipy.stats.norm(0, 1.5)."
    raise InputError(f"expected a distribution of numpyro, scipy.stats or torch; got {got}; {advice}")


def named_blocks(distributions: Mapping[str, Any]) -> tuple[list[dist.Distribution], tuple[str, ...]]:
    """Return the blocks of a dictionary from names to distributions, and one name per parameter.

    A distribution of k > 1 parameters called "a" gives the names a_1, ..., a_k.
    """
    blocks: list[dist.Distribution] = []
    names: list[str] = []
    for name, distribution in distributions.items():
        if not isinstance(name, str):
            raise InputError(f"expected names as strings; got {name!r}.")
        if isinstance(distribution, tuple | list | int | float | np.ndarray):
            raise InputError(
                f"expected a distribution for {name!r}; got {distribution!r}, which could mean limits or mean and "
                "width; try unle.Prior.uniform(low, high) or unle.Prior.normal(mean, sd)."
            )
        own = as_numpyro(distribution)
        size = sum(int(np.prod(block.shape(), dtype=int)) for block in own)
        blocks += own
        names += [name] if size == 1 else [f"{name}_{i + 1}" for i in range(size)]
    return blocks, tuple(names)


def _affine(base: dist.Distribution, loc: Any, scale: Any = 1.0) -> dist.Distribution:
    """Return the distribution of loc + scale y."""
    if np.all(np.asarray(loc) == 0) and np.all(np.asarray(scale) == 1):
        return base
    return dist.TransformedDistribution(base, transforms.AffineTransform(loc, scale))


def _truncated(a: Any, b: Any, loc: Any, scale: Any) -> dist.Distribution:
    low, high = (end if np.isfinite(end).all() else None for end in (loc + a * scale, loc + b * scale))
    return dist.TruncatedNormal(loc, scale, low=low, high=high)


# By the family's name in scipy.stats: its shape parameters, loc and scale -> the numpyro distribution.
SCIPY: dict[str, Callable[..., dist.Distribution]] = {
    "beta": lambda a, b, loc, scale: _affine(dist.Beta(a, b), loc, scale),
    "cauchy": dist.Cauchy,
    "chi2": lambda df, loc, scale: _affine(dist.Gamma(df / 2, 0.5 / scale), loc),
    "expon": lambda loc, scale: _affine(dist.Exponential(1 / scale), loc),
    "gamma": lambda a, loc, scale: _affine(dist.Gamma(a, 1 / scale), loc),
    "gumbel_r": dist.Gumbel,
    "halfcauchy": lambda loc, scale: _affine(dist.HalfCauchy(scale), loc),
    "halfnorm": lambda loc, scale: _affine(dist.HalfNormal(scale), loc),
    "invgamma": lambda a, loc, scale: _affine(dist.InverseGamma(a, scale), loc),
    "laplace": dist.Laplace,
    "logistic": dist.Logistic,
    "lognorm": lambda s, loc, scale: _affine(dist.LogNormal(np.log(scale), s), loc),
    "loguniform": lambda a, b, loc, scale: _affine(dist.LogUniform(a * scale, b * scale), loc),
    "norm": dist.Normal,
    "pareto": lambda b, loc, scale: _affine(dist.Pareto(scale, b), loc),
    "reciprocal": lambda a, b, loc, scale: _affine(dist.LogUniform(a * scale, b * scale), loc),
    "t": dist.StudentT,
    "truncnorm": _truncated,
    "uniform": lambda loc, scale: dist.Uniform(loc, loc + scale),
    "weibull_min": lambda c, loc, scale: _affine(dist.Weibull(scale, c), loc),
}


def _from_scipy(frozen: Any) -> dist.Distribution:
    kind = type(frozen).__name__
    if kind == "multivariate_normal_frozen":
        return dist.MultivariateNormal(np.asarray(frozen.mean, float), np.asarray(frozen.cov, float))
    if kind == "Normal":  # of the newer classes of scipy.stats
        return dist.Normal(np.asarray(frozen.mu), np.asarray(frozen.sigma))
    if kind == "Uniform":
        return dist.Uniform(np.asarray(frozen.a), np.asarray(frozen.b))
    if hasattr(frozen, "freeze") or isinstance(frozen, type):
        name = getattr(frozen, "name", kind)
        example = "norm(0, 1)" if name not in SCIPY else f"{name}(...) with its parameters"
        raise InputError(f"expected a frozen distribution of scipy.stats; got {name}; try scipy.stats.{example}.")
    name = str(getattr(getattr(frozen, "dist", None), "name", kind.removesuffix("_frozen")))
    if hasattr(frozen, "pmf"):
        raise InputError(
            f"expected a parameter that varies continuously; got scipy.stats.{name}, which is discrete; try one fit "
            "for each of its values, and compare their evidence."
        )
    if name not in SCIPY:
        raise InputError(
            f"expected one of the families {', '.join(sorted(SCIPY))}, multivariate_normal; "
            f"got scipy.stats.{name}; try one of these, or a distribution of numpyro."
        )
    shapes, loc, scale = frozen.dist._parse_args(*frozen.args, **frozen.kwds)
    try:
        numbers = [np.asarray(value, float) for value in (*shapes, loc, scale)]
    except (TypeError, ValueError):
        raise InputError(f"expected numbers in scipy.stats.{name}; {INDEPENDENT}") from None
    return SCIPY[name](*numbers)


# By the class's name in torch.distributions: the names of its parameters, there and in numpyro.
TORCH: dict[str, tuple[type[dist.Distribution], tuple[str, ...]]] = {
    "Beta": (dist.Beta, ("concentration1", "concentration0")),
    "Cauchy": (dist.Cauchy, ("loc", "scale")),
    "Exponential": (dist.Exponential, ("rate",)),
    "Gamma": (dist.Gamma, ("concentration", "rate")),
    "Gumbel": (dist.Gumbel, ("loc", "scale")),
    "HalfCauchy": (dist.HalfCauchy, ("scale",)),
    "HalfNormal": (dist.HalfNormal, ("scale",)),
    "Laplace": (dist.Laplace, ("loc", "scale")),
    "LogNormal": (dist.LogNormal, ("loc", "scale")),
    "MultivariateNormal": (dist.MultivariateNormal, ("loc", "covariance_matrix")),
    "Normal": (dist.Normal, ("loc", "scale")),
    "Pareto": (dist.Pareto, ("scale", "alpha")),
    "StudentT": (dist.StudentT, ("df", "loc", "scale")),
    "Uniform": (dist.Uniform, ("low", "high")),
    "Weibull": (dist.Weibull, ("scale", "concentration")),
}


def _from_torch(distribution: Any) -> list[dist.Distribution]:
    parts = getattr(distribution, "dists", None)
    if parts is not None:  # sbi's MultipleIndependent
        return [block for part in parts for block in as_numpyro(part)]
    for wrapped in ("prior", "custom_prior"):  # what sbi's process_prior puts around a distribution
        if hasattr(distribution, wrapped):
            return as_numpyro(getattr(distribution, wrapped))
    for kind in type(distribution).__mro__:
        if kind.__name__ == "Independent":  # sbi's BoxUniform is one
            return _from_torch(distribution.base_dist)
        if kind.__name__ in TORCH:
            family, parameters = TORCH[kind.__name__]
            return [family(*(as_array(getattr(distribution, name), name) for name in parameters))]
    raise InputError(
        f"expected one of the families {', '.join(sorted(TORCH))}, Independent, BoxUniform; "
        f"got torch's {type(distribution).__name__}; try one of these, or a distribution of numpyro."
    )


def describe(distribution: dist.Distribution) -> dict[str, Any]:
    """Write a distribution as a JSON-able dictionary, or name the class that cannot be."""
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
        numeric = all(isinstance(item, int | float | np.ndarray) for item in items)
        # On the host: numpyro checks its arguments there, and nothing is compiled.
        return np.asarray(spec, jax.dtypes.canonicalize_dtype(np.asarray(spec).dtype)) if numeric and items else items
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
