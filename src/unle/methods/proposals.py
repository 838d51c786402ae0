r"""Where to simulate next: a posterior that does not run ahead of its simulations.

A likelihood fitted to few simulations is too sure of itself away from them, and rounds that trust it lock themselves
into a wrong corner.  So proposals are drawn from a tempered posterior,

    pi(theta) \propto p(theta) q(x_o | theta)^beta P(valid | theta)^2,

with the largest beta <= 1 at which the simulations so far still support it: weighted by q(x_o | theta_i)^beta, they
must have a certain effective sample size.  Where nothing fails, proposals at beta = 1 are the posterior that would be
reported now: what it gets wrong, the next simulations show.  Where simulations fail, P(valid | theta) is squared: among
many parameters, proposals find those at which it is too high by mistake, and simulations that fail teach the likelihood
nothing.  (With n i.i.d. rows of x_o the posterior has P(valid | theta)^n, proposals n + 1 factors.)

Should the latest simulations nevertheless exclude x_o, some of the next ones are made around the parameters whose data
came nearest to it, whatever the likelihood says of them.
"""

import warnings
from typing import NamedTuple

import jax.random as jr
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from unle.errors import UnleWarning
from unle.posterior import Posterior

FEWEST_EFFECTIVE = 15  # simulations that must support a proposal
TAIL = 0.002  # quantile of the proposals at which the region begins,
MARGIN = 0.25  # widened on either side by this share of its width


class Box(NamedTuple):
    """A region of standardised parameters."""

    low: Float[np.ndarray, "dim"]
    high: Float[np.ndarray, "dim"]

    @classmethod
    def around(cls, t: Float[np.ndarray, "n dim"]) -> "Box":
        """Return the box that holds nearly all of the points, and a margin."""
        low, high = np.quantile(t, [TAIL, 1 - TAIL], axis=0)
        margin = MARGIN * (high - low)
        return cls(low - margin, high + margin)

    def joined(self, other: "Box") -> "Box":
        """Return the smallest box that holds both."""
        return Box(np.minimum(self.low, other.low), np.maximum(self.high, other.high))

    @classmethod
    def everywhere(cls, dim: int) -> "Box":
        """Return the box without walls."""
        return cls(np.full(dim, -np.inf), np.full(dim, np.inf))

    def contains(self, t: Float[np.ndarray, "n dim"]) -> np.ndarray:
        """Return which points lie inside."""
        return np.all((t >= self.low) & (t <= self.high), axis=1)


def supported_power(log_likelihoods: Float[np.ndarray, "n"], effective: float | int) -> float:
    """Return the largest beta <= 1 at which weights q(x_o | theta_i)^beta have the wanted effective sample size.

    Example:
        >>> import numpy as np
        >>> from unle.methods.proposals import supported_power
        >>> supported_power(np.zeros(100), effective=15)
        1.0
        >>> 0 < supported_power(np.linspace(0, 1000, 100), effective=15) < 0.1
        True
    """
    values = np.where(np.isfinite(log_likelihoods), log_likelihoods, -np.inf)
    if not np.isfinite(values.max()):
        return 0.0
    values = values - values.max()
    effective = min(effective, 0.5 * np.isfinite(values).sum())

    def size(beta):
        weights = np.exp(np.where(np.isfinite(values), beta * values, -np.inf))
        return weights.sum() ** 2 / (weights**2).sum()

    if size(1.0) >= effective:
        return 1.0
    from scipy.optimize import root_scalar  # takes long to import

    found = root_scalar(lambda log_beta: size(np.exp(log_beta)) - effective, bracket=(-30.0, 0.0), method="bisect")
    return float(np.exp(found.root))


def draw_proposals(
    key: PRNGKeyArray, posterior: Posterior, x_o: Float[np.ndarray, "rows dim_x"], n: int
) -> Float[np.ndarray, "n dim"]:
    """Draw n parameters to simulate at, in random order, from the tempered posterior of x_o."""
    seed = int(jr.randint(key, (), 0, 2**31 - 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnleWarning)  # x_o outside the simulations was said once
        draws = np.asarray(posterior.sample(x_o, n, seed=seed), float)
    return draws[np.random.default_rng(seed).permutation(len(draws))[:n]]


def draw_around(
    rng: np.random.Generator, t: Float[np.ndarray, "near dim"], n: int
) -> tuple[Float[np.ndarray, "n dim"], Float[np.ndarray, "n dim"]]:
    """Draw parameters around a few given ones, as population Monte Carlo does: normal, with twice their covariance.

    The draws are returned, and the given parameter that each is around.
    """
    centres = t[rng.integers(len(t), size=n)]
    covariance = 2 * np.atleast_2d(np.cov(t, rowvar=False))
    noise = rng.multivariate_normal(np.zeros(t.shape[1]), covariance, size=n, method="eigh")
    return centres + noise, centres
