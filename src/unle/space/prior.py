"""The prior: what is known about the parameters theta before seeing data.

A `Prior` is a distribution, or several as independent blocks, with a name for every parameter. It draws, evaluates its
density, and offers smooth coordinates u on all of R^d in which samplers move.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, Key, PRNGKeyArray
from numpyro import distributions as dist

from unle.arrays import as_array, as_count, as_seed, column_names
from unle.compiling import large_program
from unle.errors import InputError, other_names
from unle.space import prior_formats
from unle.space.bijections import AbstractBijection, Ordered, bijection_of, unwrap
from unle.space.prior_formats import as_block, as_numpyro, check_density, named_blocks

LIMIT_DRAWS = 10_000  # behind the quantiles of `limits`
ROWS_AT_ONCE = 1024  # of a sample
# Families whose own numbers are their bounds, or are not all of what describes them.
NAMED_BY_BOUNDS = (
    dist.Uniform,
    dist.TransformedDistribution,
    dist.LeftTruncatedDistribution,
    dist.RightTruncatedDistribution,
    dist.TwoSidedTruncatedDistribution,
)
SHOWN = 5  # parameters in `repr`

Numbers = ArrayLike | Sequence[Any]  # what a user may write for a vector: an array, a list, one number


class Prior(eqx.Module):
    """A distribution over d named parameters.

    Args:
        distribution: a distribution of numpyro, a frozen one of scipy.stats or one of torch (sbi's BoxUniform too) with
            draws of shape (d,), or a `Prior`; or a list of them; or a dictionary from names to them. Every item is an
            independent block; a scalar distribution is a block of one, and `dist.Uniform(low, high)` with arrays of
            shape (k,) a block of k. Discrete distributions and those without a density are refused.
        names: one name per parameter; theta_1, ..., theta_d if not given. A dictionary has its own.

    Example:
        >>> import numpyro.distributions as dist
        >>> prior = Prior([dist.Uniform(-1.0, 1.0), dist.LogNormal(0.0, 0.5)], names=["drift", "noise"])
        >>> prior.sample(3, seed=0).shape
        (3, 2)
        >>> float(prior.log_prob([2.0, 1.0]))
        -inf
    """

    blocks: tuple[Ordered, ...]
    bijections: tuple[AbstractBijection, ...]
    names: tuple[str, ...] = eqx.field(static=True)

    def __init__(
        self,
        distribution: Any,
        names: Iterable[str] | None = None,
    ):
        if isinstance(distribution, Mapping):
            if names is not None:
                raise InputError("expected no `names` next to a dictionary, whose keys are the names.")
            blocks, names = named_blocks(distribution)
        else:
            items = distribution if isinstance(distribution, list | tuple) else [distribution]
            blocks = [block for item in items for block in as_numpyro(item)]
        if not blocks:
            raise InputError("expected at least one distribution; got none.")
        self.blocks = tuple(Ordered(as_block(block)) for block in blocks)
        self.bijections = tuple(bijection_of(block, block.shape()) for block in self.distributions)
        self.names = checked_names(names, sum(_size(block) for block in self.distributions))
        for block, bijection in zip(self.distributions, self.bijections, strict=True):
            check_density(block, bijection)

    @classmethod
    @other_names(
        "Prior.uniform(low, high)", lower="low", upper="high", a="low", b="high", minimum="low", maximum="high"
    )
    def uniform(cls, low: Numbers, high: Numbers, names: Iterable[str] | None = None) -> "Prior":
        """Return the uniform prior on the box low <= theta <= high."""
        low, high = _vectors(low=low, high=high)
        return cls(dist.Uniform(low, high, validate_args=False), names)

    @classmethod
    @other_names("Prior.normal(mean, sd)", mu="mean", sigma="sd", loc="mean", scale="sd", std="sd")
    def normal(cls, mean: Numbers, sd: Numbers, names: Iterable[str] | None = None) -> "Prior":
        """Return independent normals with the given means and standard deviations."""
        mean, sd = _vectors(mean=mean, sd=sd)
        _check_positive(sd=sd)
        return cls(dist.Normal(mean, sd, validate_args=False), names)

    @classmethod
    @other_names("Prior.lognormal(mu, sigma)", mean="mu", sd="sigma", loc="mu", scale="sigma")
    def lognormal(cls, mu: Numbers, sigma: Numbers, names: Iterable[str] | None = None) -> "Prior":
        """Return independent log-normals: log theta is normal with mean mu and standard deviation sigma."""
        mu, sigma = _vectors(mu=mu, sigma=sigma)
        _check_positive(sigma=sigma)
        return cls(dist.LogNormal(mu, sigma, validate_args=False), names)

    @property
    def distributions(self) -> tuple[dist.Distribution, ...]:
        """The independent blocks of parameters."""
        return tuple(block.distribution for block in self.blocks)

    @property
    def dim(self) -> int:
        """Number of parameters d."""
        return len(self.names)

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lowest and highest value of every parameter, shape (d,) each, +-inf where there is none."""
        low = np.concatenate([np.ravel(bijection.low) for bijection in self.bijections])
        high = np.concatenate([np.ravel(bijection.high) for bijection in self.bijections])
        return low, high

    def limits(self, share: float = 0.998) -> tuple[np.ndarray, np.ndarray]:
        """Return ends of a plot's axes, shape (d,) each: the bounds, or where there are none, quantiles of the prior.

        Args:
            share: of the prior between two quantiles.
        """
        low, high = self.bounds
        if np.isfinite(low).all() and np.isfinite(high).all():
            return low, high
        tail = (1 - share) / 2
        below, above = np.quantile(self.sample(LIMIT_DRAWS), [tail, 1 - tail], axis=0)
        return np.where(np.isfinite(low), low, below), np.where(np.isfinite(high), high, above)

    def __repr__(self) -> str:
        """Name the parameters with their families and bounds, on one line."""
        kinds = [kind for block in self.distributions for kind in _described(block)]
        parts = [
            f"{name} ~ {kind}" + (f" on [{a:.4g}, {b:.4g}]" if np.isfinite(a) and np.isfinite(b) else "")
            for name, kind, a, b in zip(self.names, kinds, *self.bounds, strict=True)
        ]
        more = f", and {len(parts) - SHOWN} more" if len(parts) > SHOWN else ""
        return f"Prior({', '.join(parts[:SHOWN])}{more})"

    @other_names("prior.sample(1000)", draws="n", size="n", num_samples="n", sample_shape="n", random_seed="seed")
    def sample(self, n: int | float, *, seed: int = 0) -> Float[np.ndarray, "n dim"]:
        """Draw n parameter vectors, shape (n, d).

        Row i depends on (seed, i) only, so that a longer sample begins with the shorter one.
        """
        n, key = as_count(n), jr.key(as_seed(seed))
        # Always as many at once: what a compiler makes of a loop, and the last bits with it, depends on its length.
        blocks = [_draw_rows(self, key, first + jnp.arange(ROWS_AT_ONCE)) for first in range(0, n, ROWS_AT_ONCE)]
        return np.concatenate(jax.device_get(blocks))[:n].astype(np.float32)

    def log_prob(self, theta: Any) -> Float[Array, "*n"]:
        """Return log p(theta) of one theta, shape (d,), or of n, shape (n, d); -inf outside the support."""
        theta = jnp.asarray(self.as_theta(theta), dtype=jnp.result_type(float))
        return _log_density_rows(self, jnp.atleast_2d(theta)).reshape(theta.shape[:-1])

    def as_theta(self, theta: Any) -> Float[np.ndarray, "*n dim"]:
        """Return a user's theta, shape (d,) or (n, d), with named columns in the order of the parameters.

        Raises:
            InputError: it has another shape, or columns of other names.
        """
        array = as_array(theta, "theta")
        if array.ndim not in (1, 2) or array.shape[-1] != self.dim:
            raise InputError(f"expected theta of shape ({self.dim},) or (n, {self.dim}); got {array.shape}.")
        return array[..., self.places(column_names(theta))]

    def places(self, columns: tuple[str, ...]) -> list[int]:
        """Return where each parameter is among the columns of a table of theta; as it stands if one has no names."""
        if not columns or len(columns) != self.dim or columns == self.names:
            return list(range(self.dim))
        if set(columns) == set(self.names):
            return [columns.index(name) for name in self.names]
        if self.has_made_up_names:
            return list(range(self.dim))
        raise InputError(
            f"expected theta with the columns {', '.join(self.names)}, as the prior; got {', '.join(columns)}; "
            "try the same names, or theta.to_numpy()."
        )

    @property
    def has_made_up_names(self) -> bool:
        """Whether the parameters got their names here: theta_1, theta_2, ..."""
        return self.names == checked_names(None, self.dim)

    def draw(self, key: PRNGKeyArray) -> Float[Array, " dim"]:
        """Draw one theta."""
        keys = jr.split(key, len(self.distributions))
        return self._within([block.sample(keys[i]) for i, block in enumerate(self.distributions)])

    def draws(self, key: PRNGKeyArray, n: int) -> Float[Array, "n dim"]:
        """Draw n theta at once: one call of the generator for each block."""
        keys = jr.split(key, len(self.distributions)) if len(self.distributions) > 1 else key[None]
        return jax.vmap(self._within)([block.sample(keys[i], (n,)) for i, block in enumerate(self.distributions)])

    def _within(self, blocks: list[Any]) -> Float[Array, " dim"]:
        """Join one draw of every block, clipped to the support against rounding."""
        numbers = [jnp.asarray(theta, dtype=jnp.result_type(float)) for theta in blocks]
        within = [jnp.clip(theta, c.low, c.high) for theta, c in zip(numbers, self.bijections, strict=True)]
        return jnp.concatenate([jnp.ravel(theta) for theta in within])

    def contains(self, theta: Float[Array, " dim"]) -> Bool[Array, ""]:
        """Return whether theta lies in the support."""
        inside = [bijection.contains(part) for bijection, part in self._parts(theta)]
        return jnp.all(jnp.stack(inside))

    def log_density(self, theta: Float[Array, " dim"]) -> Float[Array, ""]:
        """Return log p(theta), -inf outside the support; its gradient is never NaN."""
        total = jnp.zeros((), theta.dtype)
        for bijection, part in self._parts(theta):
            inside = bijection.contains(part)
            safe = jnp.where(inside, part, bijection.constrain(jnp.zeros_like(part)))
            total = total + jnp.where(inside, bijection.log_density(safe), -jnp.inf)
        return total

    def constrain(self, u: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """Return theta(u), in the support for every u in R^d."""
        return jnp.concatenate([jnp.ravel(bijection.constrain(part)) for bijection, part in self._parts(u)])

    def unconstrain(self, theta: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """Return u(theta), the inverse of `constrain`; theta on the boundary is moved inside a little first."""
        return jnp.concatenate([jnp.ravel(bijection.unconstrain(part)) for bijection, part in self._parts(theta)])

    def log_density_unconstrained(self, u: Float[Array, " dim"]) -> Float[Array, ""]:
        """Return log q(u) = log p(theta(u)) + log |det d theta / d u|, the density of u under the prior."""
        parts = [bijection.log_density_unconstrained(part) for bijection, part in self._parts(u)]
        return jnp.sum(jnp.stack(parts))

    def spec(self) -> dict[str, Any]:
        """Describe the prior as JSON-able data for `from_spec`.

        Raises:
            InputError: naming the distribution that cannot be described, such as one defined by a function.
        """
        description = {
            "names": list(self.names),
            "blocks": [prior_formats.describe(b) for b in self.distributions],
        }
        for block, written in zip(self.distributions, description["blocks"], strict=True):
            try:
                same = _same_numbers(block, as_block(prior_formats.build(written)))
            except InputError as error:
                raise _undescribable(block) from error
            if not same:
                raise _undescribable(block)
        return description

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> "Prior":
        """Build the prior that `spec` described."""
        if not (isinstance(spec, dict) and {"names", "blocks"} <= set(spec)):
            raise InputError(f"expected the description of a prior, with names and blocks; got {spec!r}.")
        return cls([prior_formats.build(block) for block in spec["blocks"]], spec["names"])

    def _parts(self, vector: Float[Array, " dim"]) -> list[tuple[AbstractBijection, Array]]:
        """Cut a vector into the blocks' own shapes."""
        parts, start = [], 0
        for block, bijection in zip(self.distributions, self.bijections, strict=True):
            stop = start + _size(block)
            parts.append((bijection, jnp.reshape(vector[start:stop], block.shape())))
            start = stop
        return parts


def check_prior(prior: Any, method: Any) -> None:
    """Refuse anything but a `Prior` as the first argument of a method, with a hint where it is the simulator."""
    if isinstance(prior, Prior):
        return
    name = type(method).__name__
    if callable(prior):
        raise InputError(
            f"expected a Prior as the first argument of {name}; got a function, the simulator?; "
            f"try {name}(prior, ...) with prior = unle.Prior.uniform(low, high)."
        )
    raise InputError(
        f"expected a Prior as the first argument of {name}; got a {type(prior).__name__}; try {name}(unle.Prior(...))."
    )


@eqx.filter_jit
def _draw_rows(prior: Prior, key: PRNGKeyArray, rows: Int[Array, " n"]) -> Float[Array, "n dim"]:
    return jax.vmap(lambda row: prior.draw(jr.fold_in(key, row)))(rows)


@large_program
def unconstrained_draws(prior: Prior, keys: Key[Array, " sets"], n: int) -> Float[Array, "sets n dim"]:
    """Draw sets of n prior draws, one for each key, in unconstrained coordinates."""
    return jax.vmap(lambda key: jax.vmap(prior.unconstrain)(prior.draws(key, n)))(keys)


@eqx.filter_jit
def _log_density_rows(prior: Prior, theta: Float[Array, "n dim"]) -> Float[Array, " n"]:
    return jax.vmap(prior.log_density)(theta)


def checked_names(names: Iterable[str] | None, dim: int) -> tuple[str, ...]:
    """Return one name per parameter, made up if there are none, which files and tables can tell apart."""
    if names is None:
        return tuple(f"theta_{i + 1}" for i in range(dim))
    names = (names,) if isinstance(names, str) else tuple(names)  # an Index of pandas too
    if len(names) != dim:
        raise InputError(f"expected {dim} names, one per parameter; got {len(names)}: {', '.join(map(str, names))}.")
    if not all(isinstance(name, str) and name for name in names):
        raise InputError(f"expected names that are non-empty strings; got {names}.")
    if unfit := [name for name in names if name in ("chain", "draw")]:
        raise InputError(f'expected names other than "chain" and "draw", the axes of draws; got {", ".join(unfit)}.')
    in_files = [name.replace("/", "|") for name in names]  # as `Draws.to_arviz` writes them
    repeated = sorted({name for name, other in zip(names, in_files, strict=True) if in_files.count(other) > 1})
    if repeated:
        raise InputError(f"expected distinct names; got {', '.join(repeated)} more than once.")
    return names


def _vectors(**values: Numbers) -> list[np.ndarray]:
    """Return the values as vectors of one common length, scalars repeated."""
    arrays = {name: as_array(value, name) for name, value in values.items()}
    for name, array in arrays.items():
        if not np.all(np.isfinite(array)):
            raise InputError(f"expected finite numbers in {name}; got {array}.")
    try:
        vectors = np.broadcast_arrays(*(np.atleast_1d(array) for array in arrays.values()))
    except ValueError:
        shapes = " and ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise InputError(f"expected {' and '.join(values)} of one length; got shapes {shapes}.") from None
    return list(vectors)


def _check_positive(**values: np.ndarray) -> None:
    for name, value in values.items():
        if not np.all(value > 0):
            raise InputError(f"expected {name} > 0 in every coordinate; got {value}.")


def _described(block: dist.Distribution) -> list[str]:
    """Return what each parameter of a block is drawn from, such as `Normal(loc=0, scale=1)`."""
    core, size, family = unwrap(block), _size(block), _family(block)
    if core.event_shape or type(core) in NAMED_BY_BOUNDS:
        return [family] * size
    # Expanded blocks repeat the numbers of the one inside.
    numbers = {
        name: np.resize(np.broadcast_to(np.asarray(value, float), core.batch_shape), size)
        for name, value in core.get_args().items()
    }
    return [
        f"{family}({', '.join(f'{name}={values[i]:.4g}' for name, values in numbers.items())})" for i in range(size)
    ]


def _family(block: dist.Distribution) -> str:
    core = unwrap(block)
    if type(core) is dist.TransformedDistribution:
        return f"transformed {_family(core.base_dist)}"
    return type(core).__name__


def _same_numbers(block: dist.Distribution, other: dist.Distribution) -> bool:
    ours, theirs = jax.tree.leaves(block), jax.tree.leaves(other)
    return len(ours) == len(theirs) and all(map(np.array_equal, ours, theirs))


def _undescribable(block: dist.Distribution) -> InputError:
    return InputError(
        f"cannot save a prior with {type(unwrap(block)).__name__}: its arguments do not describe it; "
        "try another of numpyro's distributions, or a list of them, one per block of parameters."
    )


def _size(block: dist.Distribution) -> int:
    """Return the number of parameters in a block."""
    return int(np.prod(block.shape(), dtype=int))
