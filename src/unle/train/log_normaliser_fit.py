r"""Learn log Z(theta) of a doubly intractable likelihood.

In the coordinates v of a base, Z(theta) = E_{v ~ q0}[exp(s(t, v))], so weighted particles that start from the base give
an estimate of log Z and of its gradient at each theta (`estimate_log_z`):

    log Z      from the mean weights along the way from the base to the model,
    grad log Z = E_{v ~ q(. | theta)}[grad_t s(t, v)],   an average over the particles at the end.

With one temperature and no moves this is importance sampling; more temperatures make it annealed importance
sampling with resampling, for models that are far from their base.

A network b(t) is then fitted at theta drawn from any nu (best from the current posterior, where accuracy counts), to
the gradients (DIVI) and to the values.  Gradients alone leave one constant open and say nothing about the difference
between two separate regions, which is what mode weights depend on; values say both.  The loss adds them up, in
coordinates z in which nu has unit covariance:

    mean_i  values (b_i - log Z^_i)^2 / sigma^2 + gradients |grad_z b_i - g_i|^2 / (d sigma^2)

with sigma^2 the variance of the targets' values.  In the end the constant is set by the values, whatever the loss was:
log Z is absolute, and members of an ensemble can be compared.

Reference: Glaser et al. (2023), algorithm 3 (DIVI) and appendix B.3.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from unle.errors import InputError
from unle.models import DoublyIntractableLikelihood, LogNormaliser, Mlp
from unle.samplers import Particles, Path, SharedStepSize, bridge, ess
from unle.train.loop import Best, Fit, Look, Patience, adamw, begin, run, take_chunk

THETA_AT_ONCE = 64  # values of theta at once: bounds the memory
STEP_SIZE = SharedStepSize(initial=0.5, floor=0.3)  # few moves, a clear signal: it must adapt at once
FEWEST_THETA = 20  # values of theta
EFFECTIVE_DRAWS = 64.0  # effective draws of the base at nearly all theta: importance sampling will do
BRIDGE_TEMPERATURES = 8  # from base to model, where importance sampling is too noisy
BRIDGE_MOVES = 2  # kernel steps per temperature
HELD_OUT = 0.1  # of the theta, on which the best point is chosen and the error measured
WEIGHT_DECAY = 1e-4
LARGEST_DISTANCE = 50.0  # nats from the typical log Z: nothing that a posterior could reach
NEAR_PER_HELD_OUT = 3  # times the held-out rows: with fewer that are near, all are taken
RIDGE = 1e-3  # on the correlations of t
SMALLEST_SD = 1e-3  # nats: a normaliser that varies less than this is left to the linear part


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


class LogNormaliserTraining(eqx.Module):
    """Settings of the fit; `LogNormaliserTraining(values=0.0)` is the paper's DIVI.

    Args:
        values: weight of the values in the loss.
        gradients: weight of the gradients.
        spread: a third of the theta is moved by noise of so many standard deviations of nu, another third by twice as
            many.  Targets can be computed at any theta, and a fit is worst at the edge of its data: this moves the
            edge away from the posterior.
        particles: draws M of the model (weighted draws of its base) behind each target.
        temperatures: from base to model; None tries importance sampling first and bridges where that is too noisy.
        width: units per hidden layer.
        depth: hidden layers.
        iterations: optimiser steps.
        batch: theta per step.
        learning_rate: peak of the cosine schedule.
        chunk: steps between looks at the held-out theta; the best point is kept.
        checks: held-out theta at which the error is measured in the end (fewer if there are fewer).
    """

    values: float = 0.2
    gradients: float = 1.0
    spread: float = 0.7
    particles: int = eqx.field(static=True, default=512)
    temperatures: int | None = eqx.field(static=True, default=None)
    width: int = eqx.field(static=True, default=64)
    depth: int = eqx.field(static=True, default=2)
    iterations: int = eqx.field(static=True, default=1000)
    batch: int = eqx.field(static=True, default=256)
    learning_rate: float = eqx.field(static=True, default=5e-3)
    chunk: int = eqx.field(static=True, default=100)
    checks: int = eqx.field(static=True, default=50)

    def __check_init__(self):
        if min(self.values, self.gradients) < 0 or self.values + self.gradients <= 0:
            raise InputError(
                f"expected weights of values and gradients >= 0, not both zero; got {self.values} and {self.gradients}."
            )


class LogNormaliserFit(NamedTuple):
    """A fitted log-normaliser, and how far off it is."""

    log_normaliser: LogNormaliser  # b(t)
    error_max: float  # largest |error| at held-out theta, against SMC estimates of log Z, the best constant taken off
    error_sd: float  # standard deviation of these errors, in nats; their own noise is included
    noise_sd: float  # how much of it the noise of the SMC estimates explains
    ess: float  # ESS/N of the weights behind the targets that 95 % of them exceed
    temperatures: int  # from base to model that the targets took


def fit_log_normaliser(
    key: PRNGKeyArray,  # randomness of targets, network and batches
    likelihood: DoublyIntractableLikelihood,  # whose normaliser is sought
    theta: Float[Array, "n dim"] | Float[np.ndarray, "n dim"],  # draws of nu, raw; b is trustworthy where they are
    *,
    settings: LogNormaliserTraining | None = None,  # of the fit
    # network to start from, of the same width and depth: that of the previous round, or one trained online
    start: LogNormaliser | None = None,
) -> LogNormaliserFit:
    """Fit b(t) to log Z(theta)."""
    settings = LogNormaliserTraining() if settings is None else settings
    theta = jnp.asarray(theta, jnp.float32)
    if theta.ndim != 2 or theta.shape[0] < FEWEST_THETA:
        raise InputError(f"expected at least {FEWEST_THETA} values of theta, shape (n, d); got {theta.shape}.")
    key_order, key_spread, key_targets, key_net, key_fit, key_check = jr.split(key, 6)
    # Shuffled: draws come chain by chain, and held-out theta must be like the others.
    t = standardised(likelihood, theta[jr.permutation(key_order, theta.shape[0])])
    checks = t[: min(settings.checks, _n_held_out(t.shape[0]))]
    centre, factor = _mean_and_factor(np.asarray(t, float))
    noise = settings.spread * jr.normal(key_spread, (t.size,)).reshape(t.shape) @ jnp.asarray(factor.T, t.dtype)
    t = t + (jnp.arange(t.shape[0]) % 3)[:, None] * noise
    targets, temperatures = _targets(key_targets, likelihood, t, settings)
    rows = _rows_near_typical(np.asarray(targets.values, float))
    t, targets = jax.tree.map(lambda leaf: leaf[rows], (t, targets))
    b = _start(key_net, t, (centre, factor), targets, settings) if start is None else start
    b = _fit(key_fit, b, t, targets, settings)

    # Ten times the particles of a target, and other ones: what is compared with must be better than what was fitted.
    moves = BRIDGE_MOVES if temperatures > 1 else 0
    fresh = log_z_at(key_check, likelihood, checks, 10 * settings.particles, temperatures, moves)
    error = np.asarray(_values(b, checks) - fresh.values, float)
    middle = float(np.mean(error))
    b = b.shifted(-middle)
    return LogNormaliserFit(
        b,
        float(np.max(np.abs(error - middle))),
        float(np.std(error)),
        float(np.sqrt(np.mean(np.square(np.asarray(fresh.errors, float))))),
        float(np.quantile(np.asarray(targets.ess, float), 0.05)),
        temperatures,
    )


def match_gradients(
    key: PRNGKeyArray,
    t: Float[Array, "n dim"],
    gradients: Float[Array, "n dim"],
    *,
    settings: LogNormaliserTraining,
    start: LogNormaliser | None = None,
) -> tuple[LogNormaliser, float]:
    """Fit b(t), a model of log Z, to estimates of its gradient alone; the additive constant of b stays undetermined.

    Parameters t are in random order, and gradients with respect to t.  The root of the held-out mean squared error, as
    a share of the gradients' spread, is returned besides b.
    """
    gradients_only = replace(settings, values=0.0, gradients=1.0)
    zeros = jnp.zeros(len(t))
    targets = LogZEstimates(zeros, gradients, zeros, jnp.ones(len(t)))
    key_net, key_fit = jr.split(key)
    centre, factor = _mean_and_factor(np.asarray(t, float))
    whitened_gradients = np.asarray(gradients, float) @ factor  # in coordinates in which t has unit covariance
    finite = whitened_gradients[np.isfinite(whitened_gradients).all(axis=1)]
    target_sd = max(float(np.sqrt(np.mean(finite.var(axis=0)))), SMALLEST_SD)
    if start is None:
        start = _network(key_net, (centre, factor), 0.0, finite.mean(axis=0), target_sd, settings)
    b = _fit(key_fit, start, t, targets, gradients_only)
    held_out = jax.tree.map(lambda leaf: leaf[: _n_held_out(len(t))], (t, targets))
    return b, float(jnp.sqrt(_loss(_trainable(b), b, held_out, gradients_only)) * b.scale / target_sd)


def _targets(
    key, likelihood: DoublyIntractableLikelihood, t, settings: LogNormaliserTraining
) -> tuple[LogZEstimates, int]:
    """Estimate log Z and its gradient by importance sampling, or by a bridge where that rests on too few draws."""
    if settings.temperatures in (None, 1):
        targets = log_z_at(key, likelihood, t, settings.particles, 1, 0)
        effective = float(np.quantile(np.asarray(targets.ess), 0.05)) * settings.particles
        if settings.temperatures == 1 or effective >= min(EFFECTIVE_DRAWS, settings.particles / 2):
            return targets, 1
    temperatures = BRIDGE_TEMPERATURES if settings.temperatures is None else settings.temperatures
    return log_z_at(key, likelihood, t, settings.particles, temperatures, BRIDGE_MOVES), temperatures


def _rows_near_typical(values: Float[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Return rows to fit to: those too far from the typical log Z are replaced by repetitions of others.

    Where the bases of pooled models have nothing in common, log Z falls by thousands of nats.  No posterior gets there,
    but a fit to such values would be of no use anywhere else.  Held-out rows, the first, are not repeated.
    """
    at_theta = values[::3][np.isfinite(values[::3])]  # every third was not spread
    typical = np.median(at_theta) if len(at_theta) else np.nan
    near = np.flatnonzero(np.abs(values - typical) < LARGEST_DISTANCE)  # False for NaN
    held_out = _n_held_out(len(values))
    if len(near) < NEAR_PER_HELD_OUT * held_out:
        return np.arange(len(values))
    return np.concatenate([near, np.resize(near[held_out:], len(values) - len(near))])


def _mean_and_factor(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and a factor of the covariance, which is real and invertible however the points lie."""
    centre, spread = points.mean(axis=0), np.maximum(points.std(axis=0), 1e-6)
    correlation = np.atleast_2d(np.corrcoef((points - centre) / spread, rowvar=False))
    correlation = np.where(np.isfinite(correlation), correlation, 0.0) * (1 - RIDGE) + RIDGE * np.eye(len(centre))
    return centre, spread[:, None] * np.linalg.cholesky(correlation)


def _start(key, t, shape, targets: LogZEstimates, settings: LogNormaliserTraining) -> LogNormaliser:
    """Return a network of z around a linear fit of the values."""
    centre, factor = shape
    whitener = np.linalg.inv(factor)
    values = np.asarray(targets.values, float)
    finite = np.isfinite(values)
    design = np.concatenate([np.ones((len(values), 1)), (np.asarray(t, float) - centre) @ whitener.T], axis=1)[finite]
    coefficients = np.linalg.lstsq(design, values[finite], rcond=None)[0]
    target_sd = max(float(np.std(values[finite] - design @ coefficients)), SMALLEST_SD)
    return _network(key, shape, coefficients[0], coefficients[1:], target_sd, settings)


def _network(key: PRNGKeyArray, shape, offset, slope, target_sd: float, settings: LogNormaliserTraining):
    """Return a new network, its output scaled by `target_sd`, around a linear function of z."""
    centre, factor = shape
    net = Mlp(key, len(centre), 1, width=settings.width, depth=settings.depth, output_scale=0.1)
    parts = (jnp.asarray(part, jnp.float32) for part in (centre, np.linalg.inv(factor), offset, slope, target_sd))
    centre, whitener, offset, slope, scale = parts
    return LogNormaliser(centre, whitener, offset, slope, scale, net)


def _fit(key, b: LogNormaliser, t, targets: LogZEstimates, settings: LogNormaliserTraining) -> LogNormaliser:
    def chunk(state: Fit, number: int, _: int) -> tuple[Fit, Look]:
        state = _chunk(state, b, t, targets, jr.fold_in(key, number), settings, _n_held_out(t.shape[0]))
        score = float(state.best.score)
        return state, Look(score, f"held-out error {(-score) ** 0.5:.3f}")

    trained, lowest = _trainable(b), jnp.full((), -jnp.inf)
    state = Fit(begin(_optimiser(settings), trained), Best(trained, lowest, lowest))
    numbers = range(-(-settings.iterations // settings.chunk))
    patience, title = Patience(float("inf")), "Fitting log Z"
    end = run(chunk, state, numbers, steps=settings.chunk, patience=patience, title=title).state
    return eqx.tree_at(_trainable, b, end.best.trained)


def _n_held_out(n: int) -> int:
    return max(5, round(HELD_OUT * n))


def _optimiser(settings: LogNormaliserTraining) -> optax.GradientTransformation:
    return adamw(settings.learning_rate, settings.iterations, weight_decay=WEIGHT_DECAY, final_rate=0.01)


def _trainable(b: LogNormaliser) -> Any:
    """Coordinates and scale stay as they are; offset, slope and network learn."""
    return b.offset, b.slope, b.net


def _loss(trained: Any, b: LogNormaliser, data, settings: LogNormaliserTraining) -> Float[Array, ""]:
    b = eqx.tree_at(_trainable, b, trained)
    t, targets = data
    values, gradients = jax.vmap(jax.value_and_grad(b))(t)
    factor = jnp.linalg.inv(b.whitener)  # dt/dz: gradients in coordinates in which nu has unit covariance
    size = b.scale**2
    off_value = jnp.square(values - targets.values) / size
    off_gradient = jnp.mean(jnp.square((gradients - targets.gradients) @ factor), axis=1) / size
    finite = jnp.isfinite(off_value + off_gradient)
    rows = settings.values * off_value + settings.gradients * off_gradient
    return jnp.sum(jnp.where(finite, rows, 0.0)) / jnp.maximum(jnp.sum(finite), 1)


@eqx.filter_jit
def _chunk(
    state: Fit, b: LogNormaliser, t, targets: LogZEstimates, key, settings: LogNormaliserTraining, n_held_out: int
) -> Fit:
    held = jax.tree.map(lambda leaf: leaf[:n_held_out], (t, targets))
    train = jax.tree.map(lambda leaf: leaf[n_held_out:], (t, targets))
    batch = min(settings.batch, train[0].shape[0])

    def loss(trained, key):
        rows = jr.randint(key, (batch,), 0, train[0].shape[0])
        return _loss(trained, b, jax.tree.map(lambda leaf: leaf[rows], train), settings)

    def score(trained):
        return -_loss(trained, b, held, settings)

    return take_chunk(_optimiser(settings), state, loss, jr.split(key, settings.chunk), score, average=0.0)[0]


@eqx.filter_jit
def _values(b: LogNormaliser, t: Float[Array, "n dim"]) -> Float[Array, " n"]:
    return jax.vmap(b)(t)
