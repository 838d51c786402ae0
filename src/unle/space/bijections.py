"""Bijections: smooth coordinates u on all of R^k for the support of a distribution.

Samplers with gradients want a density on R^k that is finite and smooth everywhere; a prior often lives on a
box or on a half line. A bijection maps u to theta, and knows the density of u,

    log q(u) = log p(theta(u)) + log |d theta / d u|.

Which one a distribution gets depends on its support alone:

* an interval [a, b]: theta = a + (b - a) Phi(u), with Phi the normal distribution function. A uniform
  distribution becomes exactly N(0, 1) in u, which is the easiest target there is;
* a half line above or below an edge: theta = edge +- exp(u);
* a transformed distribution, theta = T(y): the bijection of y, followed by T. Then q is the density of the base's
  own coordinate and needs no log-determinant: log-normal is exactly normal, log-uniform exactly N(0, 1);
* the real line, theta = u, and anything else that numpyro can map without changing the number of dimensions:
  `biject_to(support)`.

Everything here is for one block of parameters at one point, with the block's own shape, () or (k,).
"""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betaln, erfc, log_ndtr, ndtri
from jax.scipy.stats import norm
from jaxtyping import Array, Bool, Float
from numpyro import distributions as dist
from numpyro.distributions import constraints, transforms

from unle.errors import InputError

# Between these logarithms exp is a normal float32, with room for the factors that a derivative brings along.
LOG_SMALLEST, LOG_LARGEST = -87.0, 80.0
LOG_SQUARABLE = 40.0  # and up to here so is its square, which the log-density of a half normal takes

# How far rounding in an inverse transform may carry a value out of the base's support, relative to its width.
ROUNDING = 1e-5

# Coefficients of P in `ndtr_below`, highest power first.
ERFC = (0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807)
ERFC += (-0.18628806, 0.09678418, 0.37409196, 1.00002368, -1.26551223)


@jax.tree_util.register_pytree_node_class
class Ordered:
    """A distribution, as a tree whose leaves are sorted by name.

    A compiled program that was kept on disk is found again if its arguments come in the same order.  numpyro keeps the
    names of a distribution's arrays in a set, whose order differs from process to process.
    """

    def __init__(self, distribution: dist.Distribution):
        self.distribution = distribution

    def tree_flatten(self) -> tuple[tuple[dict[str, Any]], tuple[Any, ...]]:
        """Return the fields with arrays, a dictionary, and what else the distribution is made of."""
        kind = type(self.distribution)
        values, others = self.distribution.tree_flatten()
        fields = dict(zip(kind.gather_pytree_data_fields(), values, strict=True))
        return (_map_nodes(Ordered, dist.Distribution, fields),), (kind, others)

    @classmethod
    def tree_unflatten(cls, static: tuple[Any, ...], children: tuple[dict[str, Any]]) -> "Ordered":
        """Build the distribution again."""
        kind, others = static
        fields = _map_nodes(lambda node: node.distribution, Ordered, children[0])
        values = tuple(fields[name] for name in kind.gather_pytree_data_fields())
        return cls(kind.tree_unflatten(others, values))


def _map_nodes(function: Any, kind: type, tree: Any) -> Any:
    """Apply a function to the nodes of one class, and leave the rest of the tree as it is."""
    is_node = lambda node: isinstance(node, kind)  # noqa: E731
    return jax.tree.map(lambda node: function(node) if is_node(node) else node, tree, is_leaf=is_node)


class AbstractBijection(eqx.Module):
    """Coordinates u for the support of one block, which ends at `low` and `high`, or at +-inf."""

    low: eqx.AbstractVar[Float[Array, "*block"]]
    high: eqx.AbstractVar[Float[Array, "*block"]]

    @abstractmethod
    def constrain(self, u: Float[Array, "*block"]) -> Float[Array, "*block"]:
        """Return theta(u), which lies in the support for every u."""

    @abstractmethod
    def unconstrain(self, theta: Float[Array, "*block"]) -> Float[Array, "*block"]:
        """Return u(theta), finite also for a theta on the boundary, which is first moved inside a little."""

    @abstractmethod
    def log_density(self, theta: Float[Array, "*block"]) -> Float[Array, ""]:
        """Return log p(theta) for a theta in the support; on the boundary, its value a little inside."""

    @abstractmethod
    def log_density_unconstrained(self, u: Float[Array, "*block"]) -> Float[Array, ""]:
        """Return log q(u), finite for every u."""

    @abstractmethod
    def contains(self, theta: Float[Array, "*block"], *, slack: float = 0.0) -> Bool[Array, ""]:
        """Return whether theta lies in the support; `slack` forgives rounding, relative to the width."""


class DirectBijection(AbstractBijection):
    """A bijection chosen by the support of one distribution, whose own `log_prob` is the density of theta."""

    block: Ordered
    low: Float[Array, "*block"]
    high: Float[Array, "*block"]

    @property
    def distribution(self) -> dist.Distribution:
        """The distribution of theta."""
        return self.block.distribution

    def log_density(self, theta):
        """Return log p(theta)."""
        return jnp.sum(self.distribution.log_prob(self._inside(theta)))

    def _inside(self, theta):
        """Return theta, moved off the boundary where there is one."""
        return theta


class IntervalBijection(DirectBijection):
    """An interval per coordinate: theta = low + (high - low) Phi(u)."""

    def constrain(self, u):
        """Return low + (high - low) Phi(u), measured from the nearer end and never outside of the interval."""
        distance = (self.high - self.low) * ndtr_below(jnp.where(u < 0, u, -u))
        return jnp.clip(jnp.where(u < 0, self.low + distance, self.high - distance), self.low, self.high)

    def unconstrain(self, theta):
        """Return Phi^-1((theta - low) / (high - low))."""
        below, above = theta - self.low, self.high - theta
        smallest = jnp.finfo(theta.dtype).eps / 2
        nearer = jnp.where(below < above, below, above)
        u = ndtri(jnp.maximum(nearer / (self.high - self.low), smallest))
        return jnp.where(below < above, u, -u)

    def log_density_unconstrained(self, u):
        """Return log p(theta(u)) + log(high - low) + log phi(u); closed forms for uniform and beta."""
        reference = norm.logpdf(u)
        core = unwrap(self.distribution)
        if isinstance(core, dist.Uniform):
            return jnp.sum(reference)
        if isinstance(core, dist.Beta):  # in float32 theta itself loses 1 - theta long before u loses Phi(-u)
            a, b = jnp.asarray(core.concentration1), jnp.asarray(core.concentration0)
            return jnp.sum((a - 1) * log_ndtr(u) + (b - 1) * log_ndtr(-u) - betaln(a, b) + reference)
        return self.log_density(self.constrain(u)) + jnp.sum(jnp.log(self.high - self.low) + reference)

    def contains(self, theta, *, slack=0.0):
        """Return whether low <= theta <= high in every coordinate."""
        room = slack * (self.high - self.low)
        return jnp.all((theta >= self.low - room) & (theta <= self.high + room))

    def _inside(self, theta):
        return jnp.clip(theta, self.low + _margin(self.low), self.high - _margin(self.high))


class HalfLineBijection(DirectBijection):
    """A half line per coordinate: theta = edge + exp(u) above an edge, theta = edge - exp(u) below one."""

    above: bool = eqx.field(static=True)
    closed: bool = eqx.field(static=True)

    def constrain(self, u):
        """Return edge +- exp(u), strictly on the right side of the edge."""
        return self._at(_margin(self._edge) + jnp.exp(jnp.clip(u, LOG_SMALLEST, LOG_LARGEST)))

    def unconstrain(self, theta):
        """Return log |theta - edge|."""
        margin = _margin(self._edge)
        return jnp.log(jnp.maximum(self._distance(theta) - margin, margin))

    def log_density_unconstrained(self, u):
        """Return log p(theta(u)) + u; beyond the range of float32 it keeps falling, by one per unit of u."""
        clipped = jnp.clip(u, LOG_SMALLEST, LOG_SQUARABLE)
        return self.log_density(self.constrain(clipped)) + jnp.sum(clipped - jnp.abs(u - clipped))

    def contains(self, theta, *, slack=0.0):
        """Return whether theta is finite and on the right side of the edge."""
        distance = self._distance(theta) + slack * (1 + jnp.abs(self._edge))
        return jnp.all((distance >= 0 if self.closed else distance > 0) & jnp.isfinite(theta))

    @property
    def _edge(self):
        return self.low if self.above else self.high

    def _distance(self, theta):
        return theta - self.low if self.above else self.high - theta

    def _at(self, distance):
        return self.low + distance if self.above else self.high - distance

    def _inside(self, theta):
        nearest = self._at(_margin(self._edge))
        return jnp.maximum(theta, nearest) if self.above else jnp.minimum(theta, nearest)


class NumpyroBijection(DirectBijection):
    """The real line, theta = u, and other supports that numpyro maps one-to-one: theta = biject_to(support)(u)."""

    def constrain(self, u):
        """Return biject_to(support)(u)."""
        return jnp.asarray(dist.biject_to(self.distribution.support)(u))

    def unconstrain(self, theta):
        """Return the inverse of `constrain`."""
        return jnp.asarray(dist.biject_to(self.distribution.support).inv(theta))

    def log_density_unconstrained(self, u):
        """Return log p(theta(u)) + log |d theta / d u|."""
        theta = self.constrain(u)
        log_det = dist.biject_to(self.distribution.support).log_abs_det_jacobian(u, theta)
        return self.log_density(theta) + jnp.sum(jnp.asarray(log_det))

    def contains(self, theta, *, slack=0.0):
        """Return whether theta satisfies numpyro's constraint."""
        support = self.distribution.support
        assert support is not None
        return jnp.all(jnp.asarray(support(theta)))


class TransformedBijection(AbstractBijection):
    """A transformed distribution, theta = T_m(... T_1(y)): the bijection of y, followed by the transforms."""

    base: AbstractBijection
    steps: tuple[transforms.Transform, ...]
    low: Float[Array, "*block"]
    high: Float[Array, "*block"]

    def constrain(self, u):
        """Return T(y(u)), clipped to the support."""
        value = self.base.constrain(u)
        for step in self.steps:
            if isinstance(step, transforms.ExpTransform):  # an overflow would turn gradients into NaN
                value = jnp.clip(value, LOG_SMALLEST, LOG_LARGEST)
            value = step(value)
        return jnp.clip(jnp.asarray(value), self.low, self.high)

    def unconstrain(self, theta):
        """Return u(T^-1(theta))."""
        return self.base.unconstrain(self._pull_back(theta)[0])

    def log_density(self, theta):
        """Return the base's log-density at T^-1(theta) minus the log-determinant of T there."""
        value, log_det = self._pull_back(theta)
        return self.base.log_density(value) - log_det

    def log_density_unconstrained(self, u):
        """Return log q(u) of the base: u is its coordinate, so the transform T does not enter."""
        return self.base.log_density_unconstrained(u)

    def contains(self, theta, *, slack=0.0):
        """Return whether T^-1(theta) lies in the support of the base."""
        room = slack * (1 + jnp.abs(theta))
        within = jnp.all((theta >= self.low - room) & (theta <= self.high + room) & jnp.isfinite(theta))
        return within & self.base.contains(self._pull_back(theta)[0], slack=slack + ROUNDING)

    def _pull_back(self, theta):
        """Return y = T^-1(theta) and log |det dT/dy|."""
        log_det = jnp.zeros((), theta.dtype)
        for step in reversed(self.steps):
            value = jnp.asarray(step.inv(theta))
            log_det = log_det + jnp.sum(jnp.asarray(step.log_abs_det_jacobian(value, theta)))
            theta = value
        return theta, log_det


def bijection_of(distribution: dist.Distribution, shape: tuple[int, ...]) -> AbstractBijection:
    """Choose the bijection of a distribution whose draws have the given shape, () or (k,)."""
    core = unwrap(distribution)
    if isinstance(core, dist.TransformedDistribution) and _one_to_one(core, shape):
        base, steps = bijection_of(core.base_dist, shape), tuple(core.transforms)
        low, high = _pushed_ends(base, steps, *_ends(_base_constraint(core.support), shape))
        return TransformedBijection(base=base, steps=steps, low=low, high=high)
    support = _base_constraint(distribution.support)
    low, high = _ends(support, shape)
    if isinstance(support, constraints.interval):
        _check_interval(core, low, high)
        return IntervalBijection(block=Ordered(distribution), low=low, high=high)
    if isinstance(support, constraints.greater_than | constraints.less_than):
        above = isinstance(support, constraints.greater_than)
        closed = isinstance(support, constraints.greater_than_eq | constraints.less_than_eq)
        return HalfLineBijection(block=Ordered(distribution), low=low, high=high, above=above, closed=closed)
    _check_same_dimension(distribution, shape)
    return NumpyroBijection(block=Ordered(distribution), low=low, high=high)


def ndtr_below(u: Array) -> Array:
    r"""Return Phi(u) of u <= 0, with a relative error of rounding size, in a fifth of the operations of `ndtr`.

    With z = -u / sqrt(2) and s = 1 / (1 + z / 2), the Chebyshev fit erfc(z) = s exp(-z^2 + P(s)) of Press et al. is
    wrong by a factor of at most 1 +- 1.2e-7.  Compilers copy it to wherever theta is used.
    """
    z = -u * np.sqrt(0.5)
    if z.dtype == jnp.float64:
        return 0.5 * erfc(z)
    s = 1 / (1 + 0.5 * z)
    return 0.5 * s * jnp.exp(-z * z + jnp.polyval(jnp.asarray(ERFC, z.dtype), s, unroll=len(ERFC)))


def unwrap(distribution: dist.Distribution) -> dist.Distribution:
    """Return what lies inside `to_event` and `expand`, which change shapes but not the density."""
    while isinstance(distribution, dist.Independent | dist.ExpandedDistribution):
        distribution = distribution.base_dist
    return distribution


def _base_constraint(support):
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    return support


def _margin(edge: Array) -> Array:
    """Return a distance from the edge that rounding does not lose; never a subnormal, which XLA flushes."""
    finfo = jnp.finfo(edge.dtype)
    return jnp.maximum(finfo.tiny, finfo.eps * jnp.abs(edge))


def _ends(support, shape) -> tuple[Array, Array]:
    """Return the lowest and highest value per coordinate that the support admits, as float arrays."""
    low, high = -jnp.inf, jnp.inf
    if isinstance(support, constraints.interval):
        low, high = support.lower_bound, support.upper_bound
    elif isinstance(support, constraints.greater_than):
        low = support.lower_bound
    elif isinstance(support, constraints.less_than):
        high = support.upper_bound
    dtype = jnp.result_type(float)
    low, high = (jax.device_put(np.broadcast_to(np.asarray(end, dtype), shape)) for end in (low, high))
    return low, high


def _pushed_ends(base: AbstractBijection, steps, low: Array, high: Array) -> tuple[Array, Array]:
    """Sharpen a declared support by the image of the base's ends, where transforms act on each coordinate.

    A scaled beta, for instance, declares all of R when its `AffineTransform` was given no domain.
    """
    if any(step.domain.event_dim > 0 for step in steps):
        return low, high
    first, last = base.low, base.high
    for step in steps:
        first, last = jnp.asarray(step(first)), jnp.asarray(step(last))
    lowest, highest = jnp.fmin(first, last), jnp.fmax(first, last)
    low = jnp.where(jnp.isfinite(low) | jnp.isnan(lowest), low, lowest)
    return low, jnp.where(jnp.isfinite(high) | jnp.isnan(highest), high, highest)


def _one_to_one(transformed: dist.TransformedDistribution, shape) -> bool:
    steps = transformed.transforms
    folded = any(isinstance(step, transforms.AbsTransform) for step in steps)
    keeps_shape = all(step.forward_shape(shape) == shape == step.inverse_shape(shape) for step in steps)
    return keeps_shape and not folded


def _check_interval(core: dist.Distribution, low: Array, high: Array) -> None:
    bad = np.flatnonzero(~(np.asarray(low) < np.asarray(high)))
    if bad.size:
        i = int(bad[0])
        raise InputError(
            f"expected low < high in every coordinate of {type(core).__name__}; "
            f"got low = {np.ravel(low)[i]:g} and high = {np.ravel(high)[i]:g} in coordinate {i}."
        )


def _check_same_dimension(distribution: dist.Distribution, shape) -> None:
    name, support = type(unwrap(distribution)).__name__, distribution.support
    if support is None:
        raise InputError(f"expected a distribution with a known support; numpyro gives none for {name}.")
    try:
        bijector = dist.biject_to(support)
        same = bijector.inverse_shape(shape) == shape
    except (NotImplementedError, KeyError):
        same = False
    if not same:
        raise InputError(
            f"the support of {name}, {support}, has no coordinates of its own dimension {shape}; "
            "try free parameters only (for proportions, all but one) and let the simulator derive the rest."
        )
