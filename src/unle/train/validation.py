r"""Held-out likelihood of unnormalised models: training stops by it, models are compared by it, and can it be trusted?

An unnormalised model has no likelihood until its constant is known.  With an estimate of Z_pi the tilt's merit is

    gain = mean_i(-E(t_i, w_i)) - log Z_pi      (or log Z(t_i), for a conditional model),

the log-likelihood per held-out row above that of the base alone, in nats.  An energy that over-fits has a negative one.

Two fits are compared row by row: their difference has a small standard error, since both find the same rows easy or
hard.  A fit is better if the mean difference exceeds one standard error, or as many as are asked for; never where a
score is NaN.

These constants Z_pi come from draws of the base alone.  Regions that the draws miss are missing from Z_pi.  The
`Certificate` estimates Z_pi again with other draws, and compares:

* Draws v of a *defensive mixture* h = (q0 + q0,wide) / 2, half of them from the base widened by one half, with weights
  q0 exp(-E) / h.  Their log Z_pi must agree with the base's: the difference is the gap.
* Pareto's k of these weights: above .7 a few draws carry the sum, and there may be heavier ones that were not drawn.
* The share of held-out data that outweigh every draw: data lie where no draw ever went, and Z does not count them.

It also estimates how much the model knows about theta: the mean over held-out pairs of

    log q(x_i | theta_i) - log mean_j q(x_i | theta_j),

theta_j being theta_i and 64 of other pairs.  It estimates the information that x carries about theta, as far as it was
learned, up to log 65 = 4.2 nats, beyond which it cannot tell.  At zero the posterior is the prior.

Reference: Vehtari et al., "Pareto smoothed importance sampling", 2024; Hesterberg, defensive mixtures, 1995.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int, Key
from numpy.typing import ArrayLike

from unle.compiling import TRAINING_OPTIONS, large_program
from unle.compiling import keys as host_keys
from unle.models import AbstractBase, EnergyModel
from unle.train.rows import Splits
from unle.train.training_particles import AbstractParticles, JointSpace, some_rows

WIDENING = 1.5  # factor on the residuals of half of the draws
DRAWS = 8192  # of each member; changing it may change which energies are kept
OTHER_PARAMETERS = 64  # other parameters, with which the information about theta is estimated
MOST_ROWS = 100  # held-out rows of each member that it is estimated at
MOST_PARAMETERS = 4096  # of the data, at which draws are made
SEED = 3  # of the draws; fixed, so that the same fit always gets the same certificate


class Validation(NamedTuple):
    """The held-out score of every member."""

    gain: Float[Array | np.ndarray, " member"]  # per held-out row above the base, shape (member,)
    rows: Float[Array | np.ndarray, "member held_out"]  # the gain of each held-out row, shape (member, held_out)
    # log Z_pi of each member; of a conditional model, the mean of log Z over the held-out parameters
    log_z: Float[Array, " member"]
    ess: Float[Array, " member"]  # the smallest ESS/N met in estimating it; small values make it worthless

    def of(self, part: slice) -> "Validation":
        """Return the score of some of the held-out rows alone, on the host."""
        rows = np.asarray(self.rows)[:, part]
        return self._replace(rows=rows, gain=rows.mean(axis=1))


@partial(large_program, options=TRAINING_OPTIONS)
def validate(
    keys: Key[Array, " member"],
    joint: JointSpace,
    models: EnergyModel,
    t: Float[Array, "n dim"],
    w: Float[Array, "n data"],
    splits: Splits,
    particles: AbstractParticles,
    states: Any,
) -> Validation:
    """Score every member on the rows held out from it.

    The same keys throughout a training make successive scores comparable.  Models and the states of their particles are
    stacked over members.
    """

    def one(key, model, held_out, state):
        log_z, share = particles.log_z(key, joint, state, model, t[held_out])
        rows = jax.vmap(model.log_tilt)(t[held_out], w[held_out]) - log_z
        return Validation(jnp.mean(rows), rows, jnp.mean(log_z), share)

    return eqx.filter_vmap(one)(keys, models, splits.held_out, states)


@eqx.filter_jit
def base_scores(
    bases: AbstractBase, t: Float[Array, "n dim"], w: Float[Array, "n data"], splits: Splits
) -> Float[Array, "member held_out"]:
    """Return log q0(w | t) of the rows held out from each member; bases are stacked."""

    def of_member(base, held_out):
        return jax.vmap(base.log_density)(t[held_out], w[held_out])

    return eqx.filter_vmap(of_member)(bases, jnp.asarray(splits.held_out))


def standard_error(rows: ArrayLike) -> float:
    """Return the standard error of the mean over all rows, of any shape."""
    rows = np.ravel(np.asarray(rows))
    return float(rows.std() / np.sqrt(rows.size))


def is_better(scores: ArrayLike, than: ArrayLike | float | None = None, *, errors: float = 1.0) -> bool:
    """Return whether scores exceed others, or zero, by more than so many standard errors of their difference.

    Example:
        >>> from unle.train.validation import is_better
        >>> is_better([1.0, 2.0, 3.0], than=[0.9, 2.1, 2.9]), is_better([1.0, 2.0, 3.0], than=[0.8, 1.9, 2.9])
        (False, True)
    """
    difference = np.ravel(np.asarray(scores) if than is None else np.asarray(scores) - np.asarray(than))
    return bool(difference.mean() > errors * standard_error(difference))


def simplest_as_good(scores: Sequence[ArrayLike]) -> int:
    """Return the index of the fit to keep: the first and simplest, unless a later one beats the best before it."""
    best = 0
    for i in range(1, len(scores)):
        if is_better(scores[i], scores[best]):
            best = i
    return best


class Certificate(NamedTuple):
    """How reliable a fit is.  Each number is that of the worst member; the information is the mean over members."""

    log_z_gap: float  # log Z_pi of defensive draws minus that of the base's draws, in nats
    log_z_error: float  # standard error of the gap
    pareto_k: float  # shape of the weights' tail
    outweigh: float  # share of held-out rows that outweigh every draw
    # nats about theta in one x, as far as the model has learned, on held-out rows; None where that does not tell
    # anything, in the last region of a sequential method
    information: float | None
    information_error: float  # its standard error

    @property
    def reliable(self) -> bool:
        """Whether the normaliser can be relied on; False for NaN."""
        return bool(
            abs(self.log_z_gap) < LARGEST_GAP + 2 * self.log_z_error
            and self.log_z_error < LARGEST_GAP
            and self.pareto_k < LARGEST_K
            and self.outweigh < MOST_OUTWEIGH
        )

    @property
    def doubt(self) -> str:
        """What is wrong with the normaliser, in a few words; empty if nothing is."""
        if self.reliable:
            return ""
        if not self.outweigh < MOST_OUTWEIGH:
            return f"{self.outweigh:.0%} of the held-out data lie where no draw of the base goes"
        if not self.pareto_k < LARGEST_K:
            return f"few draws carry its estimate (Pareto k = {self.pareto_k:.2f})"
        if not self.log_z_error < LARGEST_GAP:
            return f"its estimate is not precise (standard error {self.log_z_error:.2f} nats)"
        return f"two estimates of it differ by {self.log_z_gap:+.2f} nats (standard error {self.log_z_error:.2f})"

    @property
    def knows_theta(self) -> bool:
        """Whether the model is better than one that ignores theta, by two standard errors; False for NaN."""
        return self.information is not None and bool(self.information > 2 * self.information_error)


LARGEST_GAP = 0.15  # nats: a factor of 1.16 on the density
LARGEST_K = 1.0  # beyond, the mean of the weights need not exist; from .7 on the check of a run calls it doubtful
MOST_OUTWEIGH = 0.05


def certify(
    models: EnergyModel,
    log_z: Float[Array, " member"],
    t: Float[Array, "n dim"],
    w: Float[Array, "n *cell data"],
    held_out: Int[np.ndarray, "member row"],
) -> Certificate:
    """Examine stacked models with these log Z_pi, which draws of the bases gave, on rows held out from each member.

    Models that give probabilities of cells are examined by these, if w are cells.
    """
    members, rows = held_out.shape
    rows = np.asarray(held_out)[:, np.linspace(0, rows - 1, min(rows, MOST_ROWS)).astype(int)]
    key = jr.key(SEED)
    examined = _examine(host_keys(key, members), models, t, w, jnp.asarray(rows))
    log_weights, highest, tilts, gains = (np.asarray(part, float) for part in examined)
    if not all(np.isfinite(part).all() for part in (log_weights, tilts, gains)):
        return Certificate(*[float("nan")] * 6)
    estimates, errors = zip(*map(_log_mean, log_weights), strict=True)
    gaps = np.array(estimates) - np.asarray(log_z, float)
    worst = int(np.argmax(np.abs(gaps) - 2 * np.array(errors)))
    return Certificate(
        log_z_gap=float(gaps[worst]),
        log_z_error=float(np.sqrt(2) * errors[worst]),  # the base's own estimate is about as noisy
        pareto_k=max(map(pareto_k, log_weights)),
        outweigh=float(np.mean(tilts > highest[:, None], axis=1).max()),
        information=float(gains.mean()),
        information_error=standard_error(gains),
    )


@large_program
def _examine(keys: Key[Array, " member"], models: EnergyModel, t, w, rows: Int[Array, "member row"]):
    def of_member(key, model: EnergyModel, rows):
        key_rows, key_draws, key_other = jr.split(key, 3)
        parameters = some_rows(key_rows, t, MOST_PARAMETERS)
        v = model.base.draws_whitened(key_draws, DRAWS)
        k = v.shape[1]
        v = jnp.where((jnp.arange(DRAWS) % 2 == 0)[:, None], v, WIDENING * v)
        parameters = parameters[(jnp.arange(DRAWS) // 2) % parameters.shape[0]]  # each has a draw of either kind
        tilts = jax.vmap(model.log_tilt_whitened)(parameters, v)
        log_base = jax.vmap(model.base.log_density_whitened)(v)
        log_wide = jax.vmap(model.base.log_density_whitened)(v / WIDENING) - k * jnp.log(WIDENING)
        log_weights = tilts + log_base - jnp.logaddexp(log_base, log_wide) + jnp.log(2.0)
        other = t[jr.randint(key_other, (OTHER_PARAMETERS,), 0, t.shape[0])]

        def at_all(own, w):
            """Return log q and -E of w at its own parameters, and at the others: one program for all."""
            parameters = jnp.vstack([own, other])
            if w.ndim == 2:
                return jax.vmap(lambda t: model.log_cell_density(t, w))(parameters), jnp.zeros(())
            log_base, seen = jax.vmap(lambda t: model.base.log_density_and_features(t, w))(parameters)
            tilts = -jax.vmap(model.energy)(parameters, seen)
            return log_base + tilts, tilts[0]

        log_q, held_tilts = jax.vmap(at_all)(t[rows], w[rows])
        gains = log_q[:, 0] - (logsumexp(log_q, axis=1) - jnp.log(OTHER_PARAMETERS + 1.0))
        return log_weights, jnp.max(tilts), held_tilts, gains

    return eqx.filter_vmap(of_member)(keys, models, rows)


def _log_mean(log_weights: Float[np.ndarray, " n"]) -> tuple[float, float]:
    """Return the log of the mean weight, and its standard error."""
    largest = log_weights.max()
    weights = np.exp(log_weights - largest)
    mean = weights.mean()
    return float(largest + np.log(mean)), float(weights.std() / mean / np.sqrt(len(weights)))


def pareto_k(log_weights: Float[np.ndarray, " n"]) -> float:
    """Return the shape k of a generalised Pareto distribution for the largest of importance weights.

    By the estimator of Zhang and Stephens (2009), with the weak prior of Vehtari et al. that draws k towards .5.

    Example:
        >>> import numpy as np
        >>> from unle.train.validation import pareto_k
        >>> rng = np.random.default_rng(0)
        >>> round(pareto_k(np.log(rng.pareto(1 / 0.9, 20_000))), 1)  # a tail of shape .9
        0.9
        >>> pareto_k(np.zeros(1000))  # equal weights have no tail
        -inf
    """
    n = len(log_weights)
    size = int(min(n / 5, 3 * np.sqrt(n)))
    ordered = np.sort(np.exp(log_weights - log_weights.max()))
    excess = ordered[-size:] - ordered[-size - 1]
    if not excess[-1] > 1e-12:
        return float("-inf")
    if not excess[size // 4] > 0:  # a few draws carry everything, and the others are nothing beside them
        return float("inf")
    count = 30 + int(np.sqrt(size))
    quartile = excess[int(size / 4 + 0.5) - 1]
    b = (1 - np.sqrt(count / (np.arange(1, count + 1) - 0.5))) / (3 * quartile) + 1 / excess[-1]
    k = np.log1p(-b[:, None] * excess).mean(axis=1)
    profile = size * (np.log(-b / k) - k - 1)
    weights = np.exp(profile - profile.max())
    centre = b @ weights / weights.sum()
    shape = np.log1p(-centre * excess).mean()
    return float((shape * size + 10 * 0.5) / (size + 10))
