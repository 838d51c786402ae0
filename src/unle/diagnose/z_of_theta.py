r"""Is the normaliser of a jointly trained energy the same for every theta, as its posterior takes for granted?

A base q0 and a jointly trained energy E give the posterior p(theta) q0(x_o | theta) exp(-E), which is right only if

    Z(theta) = int q0(x | theta) exp(-E(theta, x)) dx

does not depend on theta.  Maximum likelihood makes it so in the limit; with finite data it is approximately so, and
how nearly can be measured.  Draws x_m of the base give log Z(theta) = log mean_m exp(-E(theta, x_m)) at posterior
draws of theta.  What matters is its spread s there: dividing by Z(theta) would multiply the posterior by a factor of
log-sd s, and an otherwise perfect posterior would reach a C2ST of about Phi(s / 2) = 0.5 + 0.2 s.

The same numbers repair the draws: the weights w_i = 1 / Z(theta_i) turn plain draws into draws of the posterior that
takes Z into account, the one a sampler for doubly-intractable targets would give.

Sequential runs report the geometric mean of their members.  What takes the place of Z is then

    C(theta) = int prod_k q_k(x | theta)^(1/K) dx,

of the members as they are, Z_k(theta) included, by importance sampling from the mixture of their bases.  It varies even
where every Z_k is constant, if the members agree better at some theta than at others.  Boxes and probabilities of
failure around a likelihood are functions of theta that belong to the posterior, and are left alone.

Every estimate is made twice, with one half of the data draws each: what the two halves have in common is free of noise.

Reference: Glaser et al., 2023, appendix C.3, which compares the two kinds of sampling.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unle.diagnose.likelihoods import Members, members_within
from unle.diagnose.record import Verdict
from unle.errors import InputError
from unle.models import EnergyLikelihood, EnergyModel, Ensemble
from unle.posterior import Draws, Posterior
from unle.samplers import ess, log_mean_exp, systematic_indices

GOOD, BAD = 0.15, 0.5  # sd of log Z in nats: a C2ST of 0.53 and of 0.60
FEWEST_EFFECTIVE = 100  # draws of the base behind an estimate of Z, below which it says nothing
CHUNK = 8  # values of theta at once: keeps the memory at a few tens of megabytes
LOWEST_WEIGHT_ESS = 0.1  # share of draws below which reweighting leaves too few of them


@dataclass(frozen=True)
class ZUniformity:
    """What the check found.  `print(check)` says it in a few lines.

    Logarithms are relative to the constant Z_pi of training, so that a perfect fit has log Z = 0 everywhere.

    Attributes:
        names: parameter names.
        theta: the posterior draws at which Z was estimated.
        log_z: log Z of the mixture there, or log C of the geometric mean.
        log_z_error: standard error of each; most of it is common to all theta and does no harm.
        member_log_z: log Z of each member.
        member_ess: ESS/N of the importance weights behind each of them; of a geometric mean, those behind C.
        rows: i.i.d. rows in the observation, times the power of a tempered likelihood; Z counts once for each.
        sd: spread of log Z over the posterior, Monte-Carlo noise subtracted, times `rows`.
        member_sd: the same for each member by itself.
        span: largest minus smallest log Z, times `rows`, noise included.
        weight_ess: ESS/N of the weights 1 / Z(theta)^rows.
        shift: how far the correction moves each parameter's mean, in posterior standard deviations.
        likelihood: the ensemble that was checked.
        n_data: draws of each base behind an estimate.
        seed: of these draws.
        geometric: whether the posterior is that of the members' geometric mean.
    """

    names: tuple[str, ...]
    theta: Float[np.ndarray, "n dim"]
    log_z: Float[np.ndarray, " n"]
    log_z_error: Float[np.ndarray, " n"]
    member_log_z: Float[np.ndarray, "member n"]
    member_ess: Float[np.ndarray, "member n"]
    rows: float
    sd: float
    member_sd: Float[np.ndarray, " member"]
    span: float
    weight_ess: float
    shift: Float[np.ndarray, " dim"]
    likelihood: Ensemble
    n_data: int
    seed: int
    geometric: bool = False

    @property
    def ess(self) -> float:
        """ESS/N that 95 % of the importance estimates of Z exceed."""
        return float(np.quantile(self.member_ess, 0.05))

    @property
    def trustworthy(self) -> bool:
        """Whether the estimates of Z rest on enough draws of the bases."""
        return self.ess * self.n_data >= FEWEST_EFFECTIVE

    @property
    def expected_c2st(self) -> float:
        """The C2ST that ignoring Z(theta) costs an otherwise perfect posterior: Phi(sd / 2), 0.5 at best."""
        return 0.5 * (1 + math.erf(self.sd / 2 / math.sqrt(2)))

    @property
    def verdict(self) -> Verdict:
        """The words good, doubtful or bad."""
        if not self.trustworthy:
            return "doubtful"
        return "good" if self.sd <= GOOD else "doubtful" if self.sd <= BAD else "bad"

    @property
    def advice(self) -> str:
        """One sentence on what to do."""
        if not self.trustworthy:
            return (
                "The bases are too far from the tilted models for so few draws of them to tell: raise n_data, "
                "or fit with the default base and more simulations."
            )
        if self.verdict == "good":
            return "Z(theta) is constant for all practical purposes: use the draws as they are."
        if self.weight_ess < LOWEST_WEIGHT_ESS:
            return (
                "The weights are too uneven to repair the draws: fit again with more simulations, "
                "or trust the corrected draws only as a hint of the direction."
            )
        repaired = "unle.z_uniformity(posterior, draws).corrected(draws)"
        return f"Use {repaired} in place of the draws, or fit again with more simulations."

    def corrected(self, draws: Draws | Any, *, seed: int = 0, n_data: int = 256) -> Any:
        """Return as many draws of the posterior with Z(theta) taken into account, by resampling.

        Z is estimated at every draw, a millisecond or two each on a small CPU.  Fewer data draws will do than for the
        check: what they leave of the error, some hundredths of a nat, cannot be seen in the draws.  Resampling
        happens within each chain.

        Args:
            draws: plain draws of the same posterior, as `Draws` or as an array (n, d).
            seed: fixes the resampling.
            n_data: draws of each base behind an estimate.

        Returns:
            `Draws` for `Draws`, else an array; unevenly weighted draws appear several times or not at all.
        """
        theta = _values(draws, len(self.names))
        flat = theta.reshape(-1, theta.shape[-1])
        estimate = estimate_log_c if self.geometric else estimate_log_z
        log_z = estimate(self.likelihood, flat, seed=self.seed, n_data=n_data).log_z
        weights = -self.rows * log_z.reshape(theta.shape[:-1])
        shifts = jr.uniform(jr.key(seed), (len(theta),))
        chosen = np.asarray(jax.vmap(systematic_indices)(shifts, jnp.asarray(weights, jnp.float32)))
        resampled = np.take_along_axis(theta, chosen[..., None], axis=1)
        if isinstance(draws, Draws):
            info = {"corrected_for_z": True, "weight_ess": _ess(weights.ravel())}
            return replace(draws, values=resampled, info=draws.info | info)
        return resampled[0]

    def __str__(self) -> str:
        """Return the findings as a few lines of text."""
        shifts = ", ".join(f"{name} {shift:+.2f}" for name, shift in zip(self.names, self.shift, strict=True))
        return "\n".join(
            [
                f"Z-uniformity: {self.verdict}. {self.advice}",
                f"  sd of log Z over the posterior   {self.sd:.3f} nats (members {self.member_sd.mean():.3f})",
                f"  range of log Z                   {self.span:.3f} nats at {len(self.log_z)} draws",
                f"  C2ST that this would cost        {self.expected_c2st:.3f} (0.5 is nothing)",
                f"  ESS behind an estimate           {self.ess * self.n_data:.0f} of {self.n_data}",
                f"  ESS of the weights 1/Z           {self.weight_ess:.0%}",
                f"  shift of the means, in sd        {shifts}",
            ]
        )


def z_uniformity(
    posterior: Posterior, draws: Draws | Any, *, seed: int = 0, n_theta: int = 200, n_data: int = 2000
) -> ZUniformity:
    """Check that the normaliser of a jointly trained energy does not depend on theta where the posterior is.

    Args:
        posterior: fitted by `AUNLE` or `SUNLE`.
        draws: its draws for one observation, as `Draws` or as an array (n, d).
        seed: fixes the choice of draws and the importance sampling.
        n_theta: draws at which Z is estimated (all, if there are fewer).
        n_data: draws of each member's base per estimate.

    Returns:
        A `ZUniformity` with a verdict, advice, and a method that corrects draws.

    Example:
        >>> import unle
        >>> posterior = unle.AUNLE(prior).fit(simulations)  # doctest: +SKIP
        >>> draws = posterior.sample(x_o)  # doctest: +SKIP
        >>> print(unle.z_uniformity(posterior, draws))  # doctest: +SKIP
    """
    members = _members(posterior.likelihood)
    likelihood = members.ensemble
    assert isinstance(likelihood, Ensemble)
    theta = _values(draws, posterior.prior.dim)
    theta = theta.reshape(-1, theta.shape[-1])
    if n_theta < 2 or n_data < 2 or len(theta) < 2:
        raise InputError(
            f"expected at least two draws, n_theta >= 2 and n_data >= 2; got {len(theta)}, {n_theta} and {n_data}; "
            "try the defaults."
        )
    rng = np.random.default_rng(seed)
    theta = theta[rng.permutation(len(theta))[:n_theta]]
    rows = members.power * (len(draws.x_o) if isinstance(draws, Draws) else 1)
    how = estimate_log_c if members.geometric else estimate_log_z
    estimate = how(likelihood, theta, seed=seed, n_data=n_data)
    log_weights = -rows * estimate.log_z
    weights = np.exp(log_weights - np.max(log_weights))
    weights /= weights.sum()
    spread = np.maximum(theta.std(axis=0), np.finfo(np.float32).tiny)
    return ZUniformity(
        names=posterior.prior.names,
        theta=theta,
        log_z=estimate.log_z,
        log_z_error=estimate.error,
        member_log_z=estimate.member_log_z,
        member_ess=estimate.member_ess,
        rows=rows,
        sd=rows * float(sd_without_noise(estimate.halves)),
        member_sd=rows * sd_without_noise(estimate.member_halves),
        span=rows * float(np.ptp(estimate.log_z)),
        weight_ess=_ess(log_weights),
        shift=(weights @ theta - theta.mean(axis=0)) / spread,
        likelihood=likelihood,
        n_data=n_data,
        seed=seed,
        geometric=members.geometric,
    )


def _members(likelihood: Any) -> Members:
    if isinstance(likelihood, EnergyLikelihood):
        arrays, static = eqx.partition(likelihood.model, eqx.is_array)
        models = eqx.combine(jax.tree.map(lambda leaf: leaf[None], arrays), static)
        alone = Ensemble(likelihood.theta_space, likelihood.x_space, models, likelihood.log_z[None])
        return Members(alone, geometric=False, power=1.0)
    found = members_within(likelihood)
    if found is None or not isinstance(found.ensemble, Ensemble):
        raise InputError(
            f"expected a posterior with a tilted likelihood, as AUNLE and SUNLE fit; got a "
            f"{type(likelihood).__name__}, whose normaliser is not in question."
        )
    return found


def _values(draws: Draws | Any, dim: int) -> Float[np.ndarray, "chain draw dim"]:
    """Return draws with axes (chain, draw, dim); a plain array is one chain."""
    if isinstance(draws, Draws):
        values = np.asarray(draws.values)
    else:
        values = np.asarray(draws)[None]
    if values.ndim != 3 or values.shape[-1] != dim or not np.isfinite(values).all():
        raise InputError(f"expected finite draws of shape (n, {dim}); got {np.shape(draws)}; try posterior.sample.")
    return values


def _ess(log_weights: Float[np.ndarray, " n"]) -> float:
    weights = np.exp(log_weights - np.max(log_weights))
    return float(np.sum(weights) ** 2 / np.sum(weights**2) / len(weights))


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
