r"""Weighted draws of many posteriors, cheaply: for calibration, which needs hundreds of them and forgives weights.

**Population Monte Carlo** (`weigh_population`).  For one observation, a few hundred
kernels around good points make a proposal r(u); its draws are weighted by p(u) q(x | u) / r(u); good points are chosen
from them by weight, and so on.  The first draws are the prior's.  As long as few draws carry the weight, the likelihood
is raised to a power beta < 1 that leaves `KEPT` effective ones.  One draw in ten still comes from the prior, so that no
weight is unbounded.

Some 5,000 evaluations of the likelihood and no gradient per posterior: a hundredth of what tempered SMC with its many
moves takes, for a purpose that forgives uneven weights.  In high dimension the weights do become uneven; the effective
number of draws says so, and the other way takes over.

Reference: Cappe et al., "Population Monte Carlo", 2004; Cappe et al., adaptive importance sampling, 2008.

**Importance sampling around modes** (`weigh_around_modes`).  Population Monte Carlo starts from draws of the prior, and
finds nothing where a posterior is sharp or has more than some eight parameters.  Here Newton's method climbs from the
best of many prior draws to a mode m, and the curvature there gives the Laplace approximation.  The proposal is a
mixture over several starts,

    r(u) = (1 - s) sum_k w_k t(u; m_k, C_k) + s p(u),      C_k = inverse of -d^2 log p(u, x) / du^2 at m_k,

with Student t distributions, whose tails are heavier than those of the posterior, weights w_k proportional to the
Laplace estimate of each mode's mass, and a share s of prior draws, which bounds the importance weights.  The parameters
that made the data have no part in any of it, so that the levels of `calibration` stay exact.

Reference: Tierney and Kadane, "Accurate approximations for posterior moments and marginal densities", 1986.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import gammaln, logsumexp
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
TRIED = 256  # prior draws, of which the best are climbed from
STARTS = 3
CLIMBS = 15  # Newton steps
SHORTENED = 8  # step lengths tried: 1, 1/2, 1/4 ...
FREEDOM = 8.0  # degrees of freedom of the Student t
WIDENING = 1.1  # of its scale, in every direction
FLATTEST = 1e-3  # curvature of the flattest direction at least; the prior has about 1 in these coordinates
SMALLEST_SHARE = 0.05  # of the draws, for every mode
FLOOR = -1e30  # stands for a log-density of minus infinity, so that differences are numbers


class Weighted(NamedTuple):
    """Weighted draws of one posterior, and the point whose rank is in question."""

    theta: Float[Array, "draw dim"]  # the draws
    log_weight: Float[Array, " draw"]  # unnormalised
    height: Float[Array, " draw"]  # log posterior density, up to a constant
    true_log_weight: Float[Array, ""]  # the weight that the true theta would have had as a draw
    true_height: Float[Array, ""]  # its log posterior density


class _Kernels(NamedTuple):
    centres: Float[Array, "centre dim"]
    roots: Float[Array, "centre dim dim"]  # lower Cholesky factors of their covariances
    inverses: Float[Array, "centre dim dim"]  # of the roots
    offsets: Float[Array, "centre dim"]  # inverse times centre
    log_dets: Float[Array, " centre"]  # of the roots


@eqx.filter_jit
def weigh_many(
    weigh_one: Callable[..., Weighted],  # how one of them is weighed, by `weigh_population` or `weigh_around_modes`
    prior: Prior,  # of theta
    likelihood: TractableLikelihood,  # up to a constant
    keys: Key[Array, " observation"],  # one per observation
    truths: Float[Array, "observation dim"],  # the parameters behind every observation; only their weights use them
    rows: Float[Array, "observation rows dim_x"],  # the observations
    n: int,  # draws of each
) -> Weighted:
    """Return n weighted draws of every posterior, stacked along a leading axis."""
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


class _Modes(NamedTuple):
    centres: Float[Array, "mode dim"]
    roots: Float[Array, "mode dim dim"]  # C = root root'
    inverses: Float[Array, "mode dim dim"]  # of the roots
    log_dets: Float[Array, " mode"]  # of the roots
    log_shares: Float[Array, " mode"]


def weigh_around_modes(key, truth, rows, prior: Prior, likelihood: TractableLikelihood, n: int) -> Weighted:
    """Return n weighted draws of one posterior; arguments as for `weigh_population`."""
    log_likelihood = log_likelihood_given(rows, prior, likelihood)

    def log_density(u):
        value = prior.log_density_unconstrained(u) + log_likelihood(u)
        return jnp.where(jnp.isfinite(value), value, FLOOR)

    key_starts, key_draws = jr.split(key)
    tried = jax.vmap(lambda k: prior.unconstrain(prior.draw(k)))(jr.split(key_starts, TRIED))
    _, best = jax.lax.top_k(jax.vmap(log_density)(tried), STARTS)
    modes = _modes(log_density, tried[best])

    def log_proposal(u):
        inner = jnp.log1p(-PRIOR_SHARE) + _log_proposal(modes, u)
        return jnp.logaddexp(inner, jnp.log(PRIOR_SHARE) + prior.log_density_unconstrained(u))

    # The truth comes last, and is weighed only.
    u = jnp.concatenate([_draw(key_draws, modes, prior, n), prior.unconstrain(truth)[None]])
    tilt = jax.vmap(log_likelihood)(u)
    ratio = jax.vmap(lambda p: prior.log_density_unconstrained(p) - log_proposal(p))(u)
    theta = jax.vmap(prior.constrain)(u)
    height = jax.vmap(prior.log_density)(theta) + tilt
    log_weight = jnp.where(jnp.isfinite(ratio + tilt), ratio + tilt, -jnp.inf)
    return Weighted(theta[:-1], log_weight[:-1], height[:-1], log_weight[-1], height[-1])


def _modes(log_density, starts: Float[Array, "mode dim"]) -> _Modes:
    """Climb from every start by Newton's method, each step as long as is best, and approximate what is there."""
    lengths = 0.5 ** jnp.arange(SHORTENED)

    def climb(u, _):
        values, directions = _curvature(log_density, u)
        step = directions @ ((directions.T @ jnp.nan_to_num(jax.grad(log_density)(u))) / values)
        ends = jnp.concatenate([u[None], u + lengths[:, None] * step])
        return ends[jnp.argmax(jax.vmap(log_density)(ends))], None

    def summit(start):
        u, _ = jax.lax.scan(climb, start, length=CLIMBS)
        values, directions = _curvature(log_density, u)
        root = WIDENING * directions / jnp.sqrt(values)
        inverse = directions.T * jnp.sqrt(values)[:, None] / WIDENING
        log_det = -0.5 * jnp.sum(jnp.log(values)) + len(u) * jnp.log(WIDENING)
        return u, root, inverse, log_det, log_density(u) + log_det

    centres, roots, inverses, log_dets, masses = jax.vmap(summit)(starts)
    shares = SMALLEST_SHARE + (1 - STARTS * SMALLEST_SHARE) * jax.nn.softmax(masses)
    return _Modes(centres, roots, inverses, log_dets, jnp.log(shares))


def _curvature(log_density, u: Float[Array, " dim"]) -> tuple[Float[Array, " dim"], Float[Array, "dim dim"]]:
    """Return eigenvalues and eigenvectors of minus the Hessian; where it is not concave, by their size."""
    hessian = -jnp.nan_to_num(jax.hessian(log_density)(u), posinf=0.0, neginf=0.0)
    values, directions = jnp.linalg.eigh(0.5 * (hessian + hessian.T))
    return jnp.maximum(jnp.abs(values), FLATTEST), directions


def _draw(key, modes: _Modes, prior: Prior, n: int) -> Float[Array, "n dim"]:
    key_prior, key_mode, key_noise, key_scale = jr.split(key, 4)
    dim = modes.centres.shape[1]
    of_prior = jax.vmap(lambda k: prior.unconstrain(prior.draw(k)))(jr.split(key_prior, n))
    chosen = jr.categorical(key_mode, modes.log_shares, shape=(n,))
    noise = jr.normal(key_noise, (n, dim)) / jnp.sqrt(jr.chisquare(key_scale, FREEDOM, (n, 1)) / FREEDOM)
    moved = modes.centres[chosen] + jnp.einsum("nij,nj->ni", modes.roots[chosen], noise)
    return jnp.where((jnp.arange(n) < PRIOR_SHARE * n)[:, None], of_prior, moved)


def _log_proposal(modes: _Modes, u: Float[Array, " dim"]) -> Float[Array, ""]:
    dim = len(u)
    z = jnp.einsum("kij,kj->ki", modes.inverses, u - modes.centres)
    kernel = -0.5 * (FREEDOM + dim) * jnp.log1p(jnp.sum(z**2, axis=1) / FREEDOM)
    constant = gammaln(0.5 * (FREEDOM + dim)) - gammaln(0.5 * FREEDOM) - 0.5 * dim * jnp.log(FREEDOM * jnp.pi)
    return logsumexp(modes.log_shares + kernel - modes.log_dets) + constant
