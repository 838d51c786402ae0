r"""A prior with some parameters held at given values: p(theta_free | theta_fixed), up to a constant.

The conditional density is the joint one at the fixed values.  It lacks a constant, and in general cannot be drawn from.
Samplers therefore start from a *reference*, a Student t distribution fitted to prior draws, and `log_correction` is the
log-density of the conditional prior over that of the reference.  Coordinates u of the free parameters cover all of R^k,
by the bounds of each parameter:

    interval: theta = low + (high - low) Phi(u),   half line: theta = edge +- exp(u),   else: theta = u.
"""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import ndtr
from jax.scipy.stats import norm
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.special import ndtri

from unle.compiling import on_device
from unle.errors import InputError
from unle.space.prior import Prior

DRAWS = 4000  # of the prior, to which the reference is fitted
FREEDOM = 4.0  # of the Student t: its tails cover normal ones and those of most priors
RIDGE = 1e-4  # on correlations
LARGEST = 80.0  # exponent
SMALLEST = 1e-7  # distance from a bound, relative to the width


class ConditionalPrior(eqx.Module):
    """A prior some of whose parameters are fixed; made by `condition_prior`."""

    prior: Prior  # of all parameters
    theta: Float[Array, " dim"]  # the fixed values; those of the free parameters mean nothing
    low: Float[Array, " free"]  # lower bounds of the free parameters
    high: Float[Array, " free"]  # upper bounds
    mean: Float[Array, " free"]  # centre of the reference
    root: Float[Array, "free free"]  # its scale, lower triangular
    free: tuple[int, ...] = eqx.field(static=True)  # indices of the free parameters

    def constrain(self, u: Float[Array, " free"]) -> Float[Array, " dim"]:
        """Return theta, with the fixed values."""
        return self.theta.at[np.array(self.free)].set(_constrain(u, self.low, self.high)[0])

    def draws(self, key: PRNGKeyArray, n: int) -> Float[Array, "n free"]:
        """Draw n of u from the reference."""
        key_normal, key_gamma = jr.split(key)
        normal = jr.normal(key_normal, (n, len(self.free))) @ self.root.T
        divisor = jnp.sqrt(2 * jr.gamma(key_gamma, FREEDOM / 2, (n, 1)) / FREEDOM)
        return self.mean + normal / divisor

    def log_density_unconstrained(self, u: Float[Array, " free"]) -> Float[Array, ""]:
        """Return the log-density of the reference, up to a constant."""
        z = solve_triangular(self.root, u - self.mean, lower=True)
        return -(FREEDOM + len(self.free)) / 2 * jnp.log1p(jnp.sum(z**2) / FREEDOM)

    def log_correction(self, u: Float[Array, " free"]) -> Float[Array, ""]:
        """Return log p(u | theta_fixed) minus the log-density of the reference, up to a constant."""
        log_det = jnp.sum(_constrain(u, self.low, self.high)[1])
        return self.prior.log_density(self.constrain(u)) + log_det - self.log_density_unconstrained(u)


def condition_prior(prior: Prior, condition: Mapping[str, Any]) -> ConditionalPrior:
    """Fix some parameters of a prior, by their names.

    Raises:
        InputError: a name is not known, a value is outside the prior, or no parameter is left.

    Example:
        >>> prior = Prior.uniform(low=[0, 0], high=[1, 2], names=["beta", "gamma"])
        >>> condition_prior(prior, {"beta": 0.4}).free
        (1,)
    """
    if not isinstance(condition, Mapping):
        example = f'{{"{prior.names[0]}": 0.4}}'
        raise InputError(f"expected `condition` as values by name; got a {type(condition).__name__}; try {example}.")
    low, high = prior.bounds
    fixed = dict(_place_and_value(name, value, prior, low, high) for name, value in condition.items())
    free = [i for i in range(prior.dim) if i not in fixed]
    if not free:
        raise InputError(
            "expected at least one parameter that is not fixed; got values for all of them; "
            "try posterior.log_prob(theta, x_o)."
        )
    own, values = list(fixed), np.zeros(prior.dim)
    values[own] = list(fixed.values())
    u = _unconstrain(np.array(prior.sample(DRAWS), float), low, high)
    mean, root = _conditional_normal(u, np.array(free), np.array(own), _unconstrain(values, low, high))
    low, high, mean, root = (on_device(part) for part in (low[free], high[free], mean, root))
    return ConditionalPrior(prior, on_device(values), low, high, mean, root, tuple(free))


def _place_and_value(name: str, value: Any, prior: Prior, low: np.ndarray, high: np.ndarray) -> tuple[int, float]:
    if name not in prior.names:
        raise InputError(f"expected a condition on the parameters {', '.join(prior.names)}; got {name!r}.")
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    i = prior.names.index(name)
    if not np.isfinite(number):
        raise InputError(f"expected a number for {name} in `condition`; got {value!r}.")
    if not low[i] <= number <= high[i]:
        raise InputError(
            f"expected a value of {name} inside the prior, {low[i]:.4g} to {high[i]:.4g}, in `condition`; "
            f"got {number:.4g}."
        )
    return i, number


def _conditional_normal(
    u: Float[np.ndarray, "n dim"], free: np.ndarray, fixed: np.ndarray, at: Float[np.ndarray, " dim"]
) -> tuple[np.ndarray, np.ndarray]:
    """Return centre and scale of the free coordinates given the fixed ones, robust against heavy tails."""
    first, centre, last = np.quantile(u, [0.16, 0.5, 0.84], axis=0)
    scale = np.maximum((last - first) / 2, 1e-12)
    z = np.clip((u - centre) / scale, -4, 4)
    covariance = np.cov(z.T).reshape(len(scale), len(scale)) + RIDGE * np.eye(len(scale))
    gain = np.linalg.solve(covariance[np.ix_(fixed, fixed)], covariance[np.ix_(fixed, free)]).T
    mean = gain @ np.clip((at - centre) / scale, -4, 4)[fixed]
    left = covariance[np.ix_(free, free)] - gain @ covariance[np.ix_(fixed, free)]
    return centre[free] + scale[free] * mean, scale[free, None] * np.linalg.cholesky(left + RIDGE * np.eye(len(free)))


def _constrain(u: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Return theta and log |d theta / d u| of every coordinate."""
    has_low, has_high = jnp.isfinite(low), jnp.isfinite(high)
    a, b = jnp.where(has_low, low, 0.0), jnp.where(has_high, high, 1.0)
    width = jnp.where(has_low & has_high, b - a, 1.0)
    distance = jnp.exp(jnp.clip(u, -LARGEST, LARGEST))
    one_sided = jnp.where(has_low, a + distance, b - distance)
    inside = jnp.clip(a + width * ndtr(u), a, a + width)
    theta = jnp.where(has_low & has_high, inside, jnp.where(has_low | has_high, one_sided, u))
    slope = jnp.where(has_low & has_high, jnp.log(width) + norm.logpdf(u), jnp.where(has_low | has_high, u, 0.0))
    return theta, slope


def _unconstrain(theta: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return u of every coordinate; a theta on a bound is moved inside a little."""
    has_low, has_high = np.isfinite(low), np.isfinite(high)
    a, b = np.where(has_low, low, 0.0), np.where(has_high, high, 1.0)
    share = np.clip((theta - a) / np.where(has_low & has_high, b - a, 1.0), SMALLEST, 1 - SMALLEST)
    distance = np.maximum(np.where(has_low, theta - a, b - theta), SMALLEST**2)
    one_sided = np.where(has_low | has_high, np.log(distance), theta)
    return np.where(has_low & has_high, ndtri(share), one_sided)
