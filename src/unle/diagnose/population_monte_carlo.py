r"""Weighted draws of many posteriors, cheaply: population Monte Carlo.

A calibration check needs hundreds of posteriors and can live with weighted draws.  For one observation, a few hundred
kernels around good points make a proposal r(u); its draws are weighted by p(u) q(x | u) / r(u); good points are chosen
from them by weight, and so on.  The first draws are the prior's.  As long as few draws carry the weight, the likelihood
is raised to a power beta < 1 that leaves `KEPT` effective ones.  One draw in ten still comes from the prior, so that no
weight is unbounded.

Some 5,000 evaluations of the likelihood and no gradient per posterior: a hundredth of what tempered SMC with its many
moves takes, for a purpose that forgives uneven weights.  In high dimension the weights do become uneven; the effective
number of draws says so, and `laplace_weights` takes over.

Reference: Cappe et al., "Population Monte Carlo", 2004; Cappe et al., adaptive importance sampling, 2008.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Key, PRNGKeyArray

from unle.models import TractableLikelihood
from unle.samplers import largest_log_power
from unle.space import Prior

STAGES = 5  # of drawing and weighing; the first draws from the prior
CENTRES = 128  # kernels
KEPT = 50  # effective draws that the power beta must leave
PRIOR_SHARE = 0.1  # of a proposal's draws come from the prior
BISECTIONS = 25
SMALLEST_LOG_POWER = -15.0
SIDE_BY_SIDE = 32  # observations at once on an accelerator; a CPU gains nothing from it


class Weighted(NamedTuple):
    """Weighted draws of one posterior, and the point whose rank is in question.

    Attributes:
        theta: the draws.
        log_weight: unnormalised.
        height: log posterior density, up to a constant.
        true_log_weight: the weight that the true theta would have had as a draw.
        true_height: its log posterior density.
    """

    theta: Float[Array, "draw dim"]
    log_weight: Float[Array, " draw"]
    height: Float[Array, " draw"]
    true_log_weight: Float[Array, ""]
    true_height: Float[Array, ""]


class _Kernels(NamedTuple):
    centres: Float[Array, "centre dim"]
    roots: Float[Array, "centre dim dim"]  # lower Cholesky factors of their covariances
    inverses: Float[Array, "centre dim dim"]  # of the roots
    offsets: Float[Array, "centre dim"]  # inverse times centre
    log_dets: Float[Array, " centre"]  # of the roots


@eqx.filter_jit
def weigh_many(
    weigh_one: Callable[..., Weighted],
    prior: Prior,
    likelihood: TractableLikelihood,
    keys: Key[Array, " observation"],
    truths: Float[Array, "observation dim"],
    rows: Float[Array, "observation rows dim_x"],
    n: int,
) -> Weighted:
    """Return n weighted draws of every posterior, stacked along a leading axis.

    Args:
        weigh_one: how one of them is weighed, by `weigh_population` or `weigh_around_modes`.
        prior: of theta.
        likelihood: up to a constant.
        keys: one per observation.
        truths: the parameters behind every observation; only their weights use them.
        rows: the observations.
        n: draws of each.
    """
    side_by_side = 1 if jax.default_backend() == "cpu" else min(SIDE_BY_SIDE, rows.shape[0])

    def one(item):
        key, truth, rows = item
        return weigh_one(key, truth, rows, prior, likelihood, n)

    return jax.lax.map(one, (keys, truths, rows), batch_size=side_by_side)


def weigh_population(key: PRNGKeyArray, truth, rows, prior: Prior, likelihood: TractableLikelihood, n: int) -> Weighted:
    """Return n weighted draws of one posterior."""
    log_likelihood = log_likelihood_given(rows, prior, likelihood)
    dim = truth.shape[0]

    def log_proposal(kernels, u):
        return jnp.logaddexp(
            jnp.log1p(-PRIOR_SHARE) + _log_mixture(kernels, u),
            jnp.log(PRIOR_SHARE) + prior.log_density_unconstrained(u),
        )

    def stage(carry, item):
        key, is_first = item
        kernels, _ = carry
        key_prior, key_centre, key_noise, key_choice = jr.split(key, 4)
        u = jax.vmap(lambda k: prior.unconstrain(prior.draw(k)))(jr.split(key_prior, n))
        chosen = jr.randint(key_centre, (n,), 0, CENTRES)
        noise = jr.normal(key_noise, (n * dim,)).reshape(n, dim)
        moved = kernels.centres[chosen] + jnp.einsum("nij,nj->ni", kernels.roots[chosen], noise)
        stays = is_first | (jnp.arange(n) < PRIOR_SHARE * n)
        # The truth comes last, and is weighed only: neither the next kernels nor anything else looks at it.
        u = jnp.concatenate([jnp.where(stays[:, None], u, moved), prior.unconstrain(truth)[None]])
        tilt = jax.vmap(log_likelihood)(u)
        ratio = jax.vmap(lambda p: prior.log_density_unconstrained(p) - log_proposal(kernels, p))(u)
        ratio = jnp.where(is_first, 0.0, ratio)
        kernels = _kernels(key_choice, u[:-1], _powered(ratio[:-1], tilt[:-1]))
        return (kernels, (u, ratio, tilt)), None

    nothing = jnp.zeros((n + 1, dim)), jnp.zeros(n + 1), jnp.zeros(n + 1)
    key_start, key_stages = jr.split(key)
    start = _kernels(key_start, jnp.zeros((n, dim)), jnp.zeros(n))  # not used: the first draws are the prior's
    items = jr.split(key_stages, STAGES), jnp.arange(STAGES) == 0
    (_, (u, ratio, tilt)), _ = jax.lax.scan(stage, (start, nothing), items)  # a scan: one compilation of the likelihood
    theta = jax.vmap(prior.constrain)(u)
    height = jax.vmap(prior.log_density)(theta) + tilt
    log_weight = jnp.where(jnp.isfinite(ratio + tilt), ratio + tilt, -jnp.inf)
    return Weighted(theta[:-1], log_weight[:-1], height[:-1], log_weight[-1], height[-1])


def log_likelihood_given(rows, prior: Prior, likelihood: TractableLikelihood) -> Callable[[Array], Array]:
    """Return the log-likelihood of all rows together, as a function of unconstrained parameters."""
    prepared = jax.vmap(likelihood.prepare)(rows)

    def log_likelihood(u):
        theta = prior.constrain(u)
        value = jnp.sum(jax.vmap(lambda w: likelihood.log_likelihood(theta, w))(prepared))
        return jnp.where(jnp.isnan(value), -jnp.inf, value)

    return log_likelihood


def _powered(ratio: Float[Array, " n"], tilt: Float[Array, " n"]) -> Float[Array, " n"]:
    """Return log weights with the likelihood to the largest power in (0, 1] that leaves enough effective draws."""
    wanted = KEPT / len(tilt)

    def weights(power):
        return jnp.where(jnp.isfinite(tilt), ratio + power * tilt, -jnp.inf)

    low, high = jnp.asarray(SMALLEST_LOG_POWER), jnp.asarray(0.0)
    return weights(jnp.exp(largest_log_power(weights, wanted, low, high, bisections=BISECTIONS)))


def _kernels(key: PRNGKeyArray, u: Float[Array, "n dim"], log_weights: Float[Array, " n"]) -> _Kernels:
    """Choose centres by weight and give each the covariance of its neighbours: thin where the posterior is thin."""
    dim = u.shape[1]
    centres = u[jr.categorical(key, log_weights, shape=(CENTRES,))]
    spread = jnp.std(centres, axis=0) + 1e-6
    scaled = centres / spread
    squares = jnp.sum(scaled**2, axis=1)
    apart = squares[:, None] + squares - 2 * scaled @ scaled.T
    _, nearest = jax.lax.top_k(-apart, min(CENTRES, max(24, 2 * dim)))
    difference = scaled[nearest] - scaled[:, None]
    local = jnp.einsum("ckd,cke->cde", difference, difference) / nearest.shape[1]
    covariance = 1.2 * local + (1e-3 * jnp.mean(jnp.trace(local, axis1=1, axis2=2)) / dim + 1e-6) * jnp.eye(dim)
    roots = spread[:, None] * jnp.linalg.cholesky(covariance)
    inverses = jax.vmap(lambda root: solve_triangular(root, jnp.eye(dim), lower=True))(roots)
    offsets = jnp.einsum("cij,cj->ci", inverses, centres)
    return _Kernels(centres, roots, inverses, offsets, jnp.sum(jnp.log(jnp.diagonal(roots, axis1=1, axis2=2)), axis=1))


def _log_mixture(kernels: _Kernels, u: Float[Array, " dim"]) -> Float[Array, ""]:
    # One large product for all centres and points; a small one for each would take ten times as long.
    z = jnp.einsum("cij,j->ci", kernels.inverses, u) - kernels.offsets
    constant = jnp.log(CENTRES) + 0.5 * len(u) * jnp.log(2 * jnp.pi)
    return logsumexp(-0.5 * jnp.sum(z**2, axis=1) - kernels.log_dets) - constant
