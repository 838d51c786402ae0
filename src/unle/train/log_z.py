r"""Estimates of log Z(theta) and of its gradient, one theta at a time.

In the coordinates v of a base, Z(theta) = E_{v ~ q0}[exp(s(t, v))], so weighted particles that start from the base give
both at once:

    log Z      from the mean weights along the way from the base to the model,
    grad log Z = E_{v ~ q(. | theta)}[grad_t s(t, v)],   an average over the particles at the end.

With one temperature and no moves this is importance sampling; more temperatures make it annealed importance
sampling with resampling, for models that are far from their base.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from unle.errors import InputError
from unle.models import DoublyIntractableLikelihood
from unle.samplers import Particles, Path, SharedStepSize, bridge, ess

THETA_AT_ONCE = 64  # values of theta at once: bounds the memory
STEP_SIZE = SharedStepSize(initial=0.5, floor=0.3)  # few moves, a clear signal: it must adapt at once


class LogZEstimates(NamedTuple):
    """Estimates at n values of theta."""

    values: Float[Array, " n"]  # log Z
    gradients: Float[Array, "n dim"]  # of log Z with respect to t, the standardised theta
    # standard error of each value, by the spread of the weights (a lower bound with several temperatures)
    errors: Float[Array, " n"]
    ess: Float[Array, " n"]  # the smallest ESS/N met at each theta


def estimate_log_z(
    key: PRNGKeyArray,
    likelihood: DoublyIntractableLikelihood,
    theta: Float[Array, "n dim"],
    *,
    particles: int = 256,
    temperatures: int = 1,
    moves: int = 0,
) -> LogZEstimates:
    """Estimate log Z at every raw theta, with independent particles for each.

    Particles are draws of the base, carried to the model in equal temperature steps with some MALA moves at each; no
    moves and one temperature are importance sampling.
    """
    if theta.ndim != 2 or min(particles, temperatures) < 1 or moves < 0:
        raise InputError(
            "expected theta of shape (n, d), particles >= 1, temperatures >= 1 and moves >= 0; "
            f"got {theta.shape}, {particles}, {temperatures} and {moves}; try the defaults."
        )
    t = standardised(likelihood, jnp.asarray(theta, jnp.float32))
    return log_z_at(key, likelihood, t, particles, temperatures, moves)


@eqx.filter_jit
def standardised(likelihood: DoublyIntractableLikelihood, theta: Float[Array, "n dim"]) -> Float[Array, "n dim"]:
    """Return t of every theta."""
    return jax.vmap(likelihood.standardise)(theta)


@eqx.filter_jit
def log_z_at(
    key: PRNGKeyArray,
    likelihood: DoublyIntractableLikelihood,
    t: Float[Array, "n dim"],
    particles: int,
    temperatures: int,
    moves: int,
) -> LogZEstimates:
    """Estimate log Z at standardised parameters t; otherwise as `estimate_log_z`."""

    def one(key, t):
        key_draw, key_bridge = jr.split(key)
        particles_at_end, info = bridge(
            key_bridge,
            Particles.equal(likelihood.draws(key_draw, particles)),
            Path(
                likelihood.log_reference,
                lambda v: likelihood.log_reference(v) + likelihood.log_tilt(t, v),
                lambda v: likelihood.log_tilt(t, v),
            ),
            step_size=STEP_SIZE,
            moves=moves,
            temperatures=temperatures,
            ess_threshold=0.5 if moves else 0.0,
        )
        gradients = jax.vmap(lambda v: jax.grad(likelihood.log_tilt)(t, v))(particles_at_end.positions)
        share = jnp.minimum(info.ess, ess(particles_at_end.log_weights))
        variance = temperatures * (1 / jnp.maximum(share, 1e-6) - 1) / particles
        return LogZEstimates(info.log_z, particles_at_end.mean(gradients), jnp.sqrt(variance), share)

    keys = jr.split(key, t.shape[0])
    return jax.lax.map(lambda pair: one(*pair), (keys, t), batch_size=min(THETA_AT_ONCE, t.shape[0]))
