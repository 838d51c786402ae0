r"""Weighted draws of many posteriors, by importance sampling around their modes.

`population_monte_carlo` starts from draws of the prior, and finds nothing where a posterior is sharp or has more than
some eight parameters.  Here Newton's method climbs from the best of many prior draws to a mode m, and the curvature
there gives the Laplace approximation.  The proposal is a mixture over several starts,

    r(u) = (1 - s) sum_k w_k t(u; m_k, C_k) + s p(u),      C_k = inverse of -d^2 log p(u, x) / du^2 at m_k,

with Student t distributions, whose tails are heavier than those of the posterior, weights w_k proportional to the
Laplace estimate of each mode's mass, and a share s of prior draws, which bounds the importance weights.  The parameters
that made the data have no part in any of it, so that the levels of `calibration` stay exact.

Reference: Tierney and Kadane, "Accurate approximations for posterior moments and marginal densities", 1986.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.special import gammaln, logsumexp
from jaxtyping import Array, Float

from unle.diagnose.population_monte_carlo import PRIOR_SHARE, Weighted, log_likelihood_given
from unle.models import TractableLikelihood
from unle.space import Prior

TRIED = 256  # prior draws, of which the best are climbed from
STARTS = 3
CLIMBS = 15  # Newton steps
SHORTENED = 8  # step lengths tried: 1, 1/2, 1/4 ...
FREEDOM = 8.0  # degrees of freedom of the Student t
WIDENING = 1.1  # of its scale, in every direction
FLATTEST = 1e-3  # curvature of the flattest direction at least; the prior has about 1 in these coordinates
SMALLEST_SHARE = 0.05  # of the draws, for every mode
FLOOR = -1e30  # stands for a log-density of minus infinity, so that differences are numbers


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
        inner = jnp.log1p(-PRIOR_SHARE) + _log_mixture(modes, u)
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


def _log_mixture(modes: _Modes, u: Float[Array, " dim"]) -> Float[Array, ""]:
    dim = len(u)
    z = jnp.einsum("kij,kj->ki", modes.inverses, u - modes.centres)
    kernel = -0.5 * (FREEDOM + dim) * jnp.log1p(jnp.sum(z**2, axis=1) / FREEDOM)
    constant = gammaln(0.5 * (FREEDOM + dim)) - gammaln(0.5 * FREEDOM) - 0.5 * dim * jnp.log(FREEDOM * jnp.pi)
    return logsumexp(modes.log_shares + kernel - modes.log_dets) + constant
