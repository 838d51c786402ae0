r"""Estimates of log Z(theta) of tilted models, and of log C(theta) of their geometric mean, by importance sampling.

The definitions are in `z_of_theta`.  Every estimate is made twice, with one half of the data draws each: what the two
halves have in common is free of noise.
"""

from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unle.models import EnergyModel, Ensemble
from unle.samplers import ess, log_mean_exp

CHUNK = 8  # values of theta at once: keeps the memory at a few tens of megabytes


@dataclass(frozen=True)
class LogZEstimate:
    """Estimates of log Z / Z_pi; the halves use one half of the data draws each."""

    log_z: Float[np.ndarray, " n"]
    error: Float[np.ndarray, " n"]
    member_log_z: Float[np.ndarray, "member n"]
    member_ess: Float[np.ndarray, "member n"]
    halves: Float[np.ndarray, "2 n"]
    member_halves: Float[np.ndarray, "2 member n"]


def estimate_log_z(likelihood: Ensemble, theta: Float[np.ndarray, "n dim"], *, seed: int, n_data: int) -> LogZEstimate:
    """Return estimates of log Z of every member and of their mixture, from so many draws of each base."""
    n, per_half = len(theta), -(-n_data // 2)
    padded = np.concatenate([theta, np.repeat(theta[-1:], -n % CHUNK, axis=0)])  # whole chunks: nothing is recompiled
    halves, share = _log_z_halves(jr.key(seed), likelihood, jnp.asarray(padded, jnp.float32), per_half)
    member_halves = np.moveaxis(np.asarray(halves, float)[:n], 0, -1)  # (half, member, n)
    member_ess = np.asarray(share, float)[:n].T
    member_log_z = _log_mean_exp(member_halves)
    # d log Z = sum_k W_k d log Z_k with W_k the member's part of the mixture, and independent errors of the members.
    part = np.exp(member_log_z - member_log_z.max(axis=0))
    part /= part.sum(axis=0)
    variance = np.maximum(1 / np.maximum(member_ess, 1e-12) - 1, 0) / (2 * per_half)
    return LogZEstimate(
        log_z=_log_mean_exp(member_log_z),
        error=np.sqrt(np.sum(part**2 * variance, axis=0)),
        member_log_z=member_log_z,
        member_ess=member_ess,
        halves=_log_mean_exp(np.moveaxis(member_halves, 1, 0)),
        member_halves=member_halves,
    )


@eqx.filter_jit
def _log_z_halves(
    key: PRNGKeyArray, likelihood: Ensemble, thetas: Float[Array, "n dim"], per_half: int
) -> tuple[Float[Array, "n 2 member"], Float[Array, "n member"]]:
    """Estimate log Z_k(theta) / Z_k,pi twice, and return ESS/N of both halves together.

    The same draws v of the bases serve every theta: their error is then nearly common to all, and cancels in the
    differences of log Z that matter.
    """

    def draws(key, base):
        return base.draws_whitened(key, 2 * per_half)

    v = eqx.filter_vmap(draws)(jr.split(key, likelihood.size), likelihood.models.base)

    def one_member(model: EnergyModel, v, t):
        log_tilt = jax.vmap(lambda v: model.log_tilt_whitened(t, v))(v)
        return jax.vmap(log_mean_exp)(log_tilt.reshape(2, per_half)), ess(log_tilt)

    def one(theta):
        t = likelihood.theta_space.forward(theta)
        halves, share = eqx.filter_vmap(one_member, in_axes=(eqx.if_array(0), 0, None))(likelihood.models, v, t)
        return halves.T - likelihood.log_z, share

    return jax.lax.map(one, thetas, batch_size=CHUNK)


def estimate_log_c(likelihood: Ensemble, theta: Float[np.ndarray, "n dim"], *, seed: int, n_data: int) -> LogZEstimate:
    """Return estimates of log C; the members' own are those of `estimate_log_z`."""
    alone = estimate_log_z(likelihood, theta, seed=seed, n_data=n_data)
    n, per_base = len(theta), -(-n_data // (2 * likelihood.size))
    padded = np.concatenate([theta, np.repeat(theta[-1:], -n % CHUNK, axis=0)])
    halves, share = _log_c_halves(jr.key(seed), likelihood, jnp.asarray(padded, jnp.float32), per_base)
    halves, share = np.asarray(halves, float)[:n].T, np.asarray(share, float)[:n]
    variance = np.maximum(1 / np.maximum(share, 1e-12) - 1, 0) / (2 * per_base * likelihood.size)
    behind = np.broadcast_to(share, alone.member_ess.shape)
    return replace(
        alone, log_z=_log_mean_exp(halves), error=np.sqrt(variance), halves=halves, member_ess=np.array(behind)
    )


@eqx.filter_jit
def _log_c_halves(
    key: PRNGKeyArray, likelihood: Ensemble, thetas: Float[Array, "n dim"], per_base: int
) -> tuple[Float[Array, "n 2"], Float[Array, " n"]]:
    """Estimate log C(theta) twice, and return ESS/N of both halves together."""
    bases, size = likelihood.models.base, likelihood.size
    v = eqx.filter_vmap(lambda key, base: base.draws_whitened(key, 2 * per_base))(jr.split(key, size), bases)

    def one(theta):
        t = likelihood.theta_space.forward(theta)
        w = eqx.filter_vmap(lambda base, v: jax.vmap(lambda v: base.unwhiten(t, v))(v))(bases, v)
        w = jnp.swapaxes(w.reshape(size, 2, per_base, -1), 0, 1).reshape(2 * size * per_base, -1)  # half by half

        def log_weight(w):
            mean = jnp.mean(likelihood.member_log_likelihoods(theta, w))
            return mean - log_mean_exp(eqx.filter_vmap(lambda base: base.log_density(t, w))(bases))

        weights = jax.vmap(log_weight)(w)
        return jax.vmap(log_mean_exp)(weights.reshape(2, -1)), ess(weights)

    return jax.lax.map(one, thetas, batch_size=CHUNK)


def sd_without_noise(halves: Float[np.ndarray, "2 *member n"]) -> Any:
    """Return the sd over theta: the errors of two halves are independent, so their covariance has no noise in it."""
    centred = halves - halves.mean(axis=-1, keepdims=True)
    return np.sqrt(np.maximum(np.mean(centred[0] * centred[1], axis=-1), 0.0))


def _log_mean_exp(values: Float[np.ndarray, "k *rest"]) -> Float[np.ndarray, "*rest"]:
    return np.logaddexp.reduce(values, axis=0) - np.log(len(values))
