r"""Did the rounds of a sequential run cut off a part of the posterior?

Rounds narrow the region B of parameters that is simulated and fitted, and the posterior is confined to it.  An early
fit that was too sure of itself, such as one with Gaussian noise where the noise has heavy tails, leaves a part of the
posterior outside, and no later round comes back to it.  The last fit may know better.  Continue it beyond the region
along one parameter at a time, the others held at a draw of the posterior:

    share_j = E [ integral over theta_j outside B of p(theta) q(x_o | theta)
                  / integral over theta_j inside B of p(theta) q(x_o | theta) ],

the expectation over draws of the confined posterior.  It is the mass just outside the region in direction j, in units
of the mass inside: for theta_-j has the density (integral inside) / Z, so that the integrals inside cancel.

A continued fit is an extrapolation, so that the check doubts and never condemns.  It misses mass that is outside in two
parameters at once, and whatever the last fit does not know of either.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unle.diagnose.likelihoods import without_region
from unle.diagnose.record import Check, CheckKind, NotApplicable
from unle.models import GivenValid, Region, TractableLikelihood
from unle.posterior import Draws, Posterior

REGION = CheckKind("region", "Region of the rounds", "Is the posterior inside the region that the rounds came to?")
LINES = 64  # draws through which lines are laid, along every parameter
QUANTILES = 48  # points of a line at quantiles of the prior, and as many at those of the draws
PRIOR_DRAWS = 2000
LARGEST_SHARE = 0.03  # of the mass inside; more is doubtful


def region_within(likelihood: Any) -> Region | None:
    """Return the region that a likelihood is confined to, None if it is not."""
    if not isinstance(likelihood, GivenValid):
        return None
    return likelihood.validity if isinstance(likelihood.validity, Region) else region_within(likelihood.likelihood)


def region_mass(posterior: Posterior, draws: Draws) -> Check:
    """Compare the mass of a sequential run's last fit outside the region with that inside."""
    likelihood = posterior.likelihood
    region = region_within(likelihood)
    if region is None or not isinstance(likelihood, TractableLikelihood):
        raise NotApplicable("the posterior is not confined to a region.")
    prior, values = posterior.prior, np.asarray(draws, np.float32)
    chosen = values[np.linspace(0, len(values) - 1, min(len(values), LINES)).astype(int)]
    to_line = jax.vmap(prior.unconstrain)
    sides = [to_line(jnp.asarray(side, jnp.float32)) for side in (np.asarray(prior.sample(PRIOR_DRAWS)), values)]
    levels = np.linspace(0.001, 0.999, QUANTILES)
    points = np.sort(np.concatenate([np.quantile(np.asarray(side, float), levels, axis=0) for side in sides]), axis=0)
    rows = jnp.asarray(draws.x_o, jnp.float32)
    shares = _shares(
        posterior, without_region(likelihood), region, to_line(jnp.asarray(chosen)), jnp.asarray(points), rows
    )
    outside = np.minimum(np.nan_to_num(np.asarray(shares, float), nan=1.0, posinf=1.0), 1.0).mean(axis=0)
    worst = int(np.argmax(outside))
    advice = "By the last fit hardly any of the posterior lies outside."
    if outside[worst] > LARGEST_SHARE:
        advice = (
            f"The rounds may have cut off a tail of the posterior: the last fit puts {outside[worst]:.0%} of it beyond "
            f"their region along {draws.names[worst]}; compare with --method aunle, or larger rounds."
        )
    numbers = {"outside": float(outside[worst])}
    return REGION.result("doubtful" if outside[worst] > LARGEST_SHARE else "good", numbers, advice)


@eqx.filter_jit
def _shares(
    posterior: Posterior, likelihood: Any, region: Region, starts, points: Float[Array, "point dim"], rows
) -> Float[Array, "line dim"]:
    prior, prepared = posterior.prior, jax.vmap(likelihood.prepare)(rows)

    def log_density(u):
        theta = prior.constrain(u)
        value = jnp.sum(jax.vmap(lambda w: likelihood.log_likelihood(theta, w))(prepared))
        value = prior.log_density_unconstrained(u) + value
        return jnp.where(jnp.isnan(value), -jnp.inf, value), region(theta) == 0

    def along(start, j):
        line = points[:, j]
        logs, inside = jax.vmap(lambda value: log_density(start.at[j].set(value)))(line)
        density = jnp.exp(logs - jnp.max(jnp.where(jnp.isfinite(logs), logs, -1e30)))
        mass = density * jnp.asarray(jnp.gradient(line))  # times the width of the cell that a point stands for
        within = jnp.sum(jnp.where(inside, mass, 0.0))
        return jnp.sum(jnp.where(inside, 0.0, mass)) / jnp.maximum(within, 1e-30)

    dims = jnp.arange(points.shape[1])
    return jax.lax.map(lambda start: jax.vmap(lambda j: along(start, j))(dims), starts)
