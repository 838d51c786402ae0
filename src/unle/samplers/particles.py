r"""Weighted particles: a sample in which some points count for more than others.

A particle set $\{(x_i, w_i)\}$ stands for a distribution through $E[f] \approx \sum_i W_i f(x_i)$ with the
normalised weights $W_i = w_i / \sum_j w_j$. How unequal they are is measured by the effective sample size

$$\mathrm{ESS}/N = \frac{(\sum_i w_i)^2}{N \sum_i w_i^2} \in [1/N, 1].$$

Resampling trades unequal weights for repeated points.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float, Int

Tree = TypeVar("Tree")


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
