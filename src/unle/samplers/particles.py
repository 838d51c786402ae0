r"""Weighted particles: a sample in which some points count for more than others.

A particle set $\{(x_i, w_i)\}$ stands for a distribution through $E[f] \approx \sum_i W_i f(x_i)$ with the
normalised weights $W_i = w_i / \sum_j w_j$. How unequal they are is measured by the effective sample size

$$\mathrm{ESS}/N = \frac{(\sum_i w_i)^2}{N \sum_i w_i^2} \in [1/N, 1].$$

Resampling trades unequal weights for repeated points.

A `Whitening` is a linear change of variables after which a sample has unit covariance. With mean $\mu$ and covariance
$\Sigma = L L^\top$ of the particles, $x = \mu + L z$. In the coordinates z one step size fits all directions, so that
kernels need no mass matrix.

`over_devices` spreads particles over all devices of this machine: they are independent while they move. JAX divides a
compiled program by itself, once the layout of one array in it is given. Gradients and resampling need all particles,
and communicate between devices; random numbers do not depend on the layout. Sums are taken in another order than on one
device, so that results agree up to rounding. With one device it does nothing at all.
"""

import math
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import logsumexp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float, Int

Tree = TypeVar("Tree")
# Added to the *correlation* matrix: keeps float32 Cholesky factors real for nearly degenerate samples, and
# still resolves directions whose widths differ by a factor of about 300.
RIDGE = 1e-5
AXES = ("chains", "particles")


class Room(NamedTuple):
    """Room for draws, and how many are wanted: a number that may change without another compilation; None for all."""

    size: int
    wanted: Int[Array, ""] | None = None

    @classmethod
    def of(cls, keep: "int | Room") -> "Room":
        """Return the room for so many draws."""
        return keep if isinstance(keep, Room) else cls(keep)


class Particles(eqx.Module):
    """A weighted sample: points, and log w_i up to a common constant; -inf is a dead particle."""

    positions: Float[Array, "particle dim"]
    log_weights: Float[Array, " particle"]

    @classmethod
    def equal(cls, positions: Float[Array, "particle dim"]) -> "Particles":
        """Give every point the same weight."""
        return cls(positions, jnp.zeros(positions.shape[0]))

    @property
    def weights(self) -> Float[Array, " particle"]:
        """Normalised weights W_i, which sum to one."""
        return jnp.exp(normalise(self.log_weights))

    @property
    def ess(self) -> Float[Array, ""]:
        """Effective sample size as a share of the number of particles."""
        return ess(self.log_weights)

    def mean(self, values: Float[Array, "particle *shape"]) -> Float[Array, "*shape"]:
        """Return the weighted mean of one value per particle."""
        return jnp.tensordot(self.weights, values, axes=1)


def normalise(log_weights: Float[Array, " particle"]) -> Float[Array, " particle"]:
    """Shift log-weights so that the weights sum to one; equal weights if every particle is dead."""
    alive = jnp.max(log_weights) > -jnp.inf
    log_weights = jnp.where(alive, log_weights, 0.0)
    return log_weights - logsumexp(log_weights)


def ess(log_weights: Float[Array, " particle"]) -> Float[Array, ""]:
    """Return ESS/N of unnormalised log-weights; 0 if every particle is dead.

    Example:
        >>> import jax.numpy as jnp
        >>> from unle.samplers import ess
        >>> float(ess(jnp.zeros(4))), float(ess(jnp.array([0.0, 0.0, -jnp.inf, -jnp.inf])))
        (1.0, 0.5)
    """
    largest = jnp.max(log_weights)
    weights = jnp.exp(log_weights - jnp.where(jnp.isfinite(largest), largest, 0.0))
    squares = jnp.sum(weights**2)
    return jnp.sum(weights) ** 2 / jnp.where(squares > 0, squares, 1.0) / log_weights.shape[0]


def largest_log_power(
    log_weights: Callable[[Float[Array, ""]], Float[Array, " particle"]],
    wanted: Float[Array, ""] | float,
    low: Float[Array, ""],
    high: Float[Array, ""],
    *,
    bisections: int,
) -> Float[Array, ""]:
    """Return the logarithm of the largest power, between two, at which weights have the wanted ESS/N.

    The ESS falls as the power grows.  Bisection on the logarithm: a power may be tiny where the likelihood is sharp.
    The smallest is taken to be small enough; the largest is returned if the ESS suffices there.
    """

    def halve(i, interval):
        low, high = interval
        middle = jnp.where(i == 0, high, 0.5 * (low + high))  # the end may be within reach
        enough = ess(log_weights(jnp.exp(middle))) >= wanted
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    return jax.lax.fori_loop(0, 1 + bisections, halve, (low, high))[0]


def choose_rows(which: Bool[Array, " n"], new: Tree, old: Tree) -> Tree:
    """Return rows of the new arrays where `which` is set, and of the old ones elsewhere."""
    return jax.tree.map(lambda a, b: jnp.where(which.reshape(which.shape + (1,) * (a.ndim - 1)), a, b), new, old)


def log_mean_exp(values: Float[Array, " particle"]) -> Float[Array, ""]:
    """Return log((1/N) sum_i exp(v_i)) without overflow."""
    return logsumexp(values) - jnp.log(values.shape[0])


def systematic_indices(shift: Float[Array, ""], log_weights: Float[Array, " particle"]) -> Int[Array, " particle"]:
    """Choose N ancestors so that particle i is chosen N W_i times, rounded up or down at random.

    One number, uniform in [0, 1), shifts a regular comb over the cumulative weights: the least noisy of the common
    schemes, and unbiased. A particle of weight zero is never chosen, whatever float32 does to the last sums.
    """
    n = log_weights.shape[0]
    cumulative = jnp.cumsum(jnp.exp(normalise(log_weights)))
    comb = (jnp.arange(n) + shift) / n * cumulative[-1]
    last_alive = jnp.argmax(cumulative == cumulative[-1])
    return jnp.minimum(jnp.searchsorted(cumulative, comb, side="right"), last_alive)


class Whitening(eqx.Module):
    """The map x = mean + factor z; the factor L is lower triangular."""

    mean: Float[Array, " dim"]
    factor: Float[Array, "dim dim"]

    def colour(self, white: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """Map z to x."""
        return self.mean + self.factor @ white

    def whiten(self, position: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """Map x to z."""
        return solve_triangular(self.factor, position - self.mean, lower=True)


def fit_whitening(
    positions: Float[Array, "particle dim"], weights: Float[Array, " particle"] | None = None
) -> Whitening:
    """Take mean and covariance from a sample, with normalised weights or equal ones.

    The factor is finite and invertible for every sample, even one in which all points coincide.
    """
    n, dim = positions.shape
    weights = jnp.full(n, 1.0 / n) if weights is None else weights
    mean = weights @ positions
    centred = positions - mean
    covariance = (weights[:, None] * centred).T @ centred
    # The floor is about the spacing of float32 numbers of that size: a sample cannot be narrower than that.
    width = jnp.maximum(jnp.sqrt(jnp.diag(covariance)), 1e-6 * (1.0 + jnp.abs(mean)))
    correlation = covariance / jnp.outer(width, width)
    correlation = jnp.where(jnp.eye(dim, dtype=bool), 1.0 + RIDGE, correlation)
    factor = jnp.linalg.cholesky(correlation)
    factor = jnp.where(jnp.all(jnp.isfinite(factor)), factor, jnp.eye(dim))
    return Whitening(mean, width[:, None] * factor)


def over_devices(tree: Tree, *, axes: int = 1) -> Tree:
    """Lay arrays out over all local devices, by one or two leading axes; meant for use inside `jax.jit`.

    An axis is divided into as many equal parts as it can be among the devices: 1000 chains on 4 devices into 4; 4
    islands of 500 particles on 8 devices into 4, and each island into 2.  Where devices are left over, they repeat the
    same computation.  Nothing happens where there is one device, or where the user has chosen one
    (`jax.default_device`).
    """
    devices = jax.local_devices()
    chosen = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]  # made at run time
    if len(devices) == 1 or chosen is not None:
        return tree

    def one(leaf):
        if not isinstance(leaf, jax.Array) or leaf.ndim < axes:
            return leaf
        parts, left = [], len(devices)
        for size in leaf.shape[:axes]:
            parts.append(math.gcd(size, left))
            left //= parts[-1]
        mesh = Mesh(np.array(devices).reshape(*parts, left), (*AXES[:axes], "idle"))
        return jax.lax.with_sharding_constraint(leaf, NamedSharding(mesh, PartitionSpec(*AXES[:axes])))

    return jax.tree.map(one, tree)
