r"""Tempered sequential Monte Carlo: from a reference to a posterior, through every mode in between.

The target is $\pi(u) \propto r(u)\,e^{\ell(u)}$, a reference r (the prior, in unconstrained coordinates)
tilted by a log-likelihood. The sampler starts from draws of the reference and raises the power $\beta$ in
$r\,e^{\beta\ell}$ from 0 to 1; an inverse temperature, called `temperature` here. Each next $\beta$ is as large
as the effective sample size of the reweighted particles allows; then follow resampling and sweeps of moves at the new
temperature, as many (within limits) as it takes to make the particles forget where they were.

Why this rather than a few long chains: modes get their weights from the whole population, not from the number
of chains that happened to start in each basin. And the evidence $\int r\,e^{\ell}$ comes for free, estimated
by the product of the mean incremental weights.

Everything happens in one `lax.while_loop` with fixed shapes: new observations of the same shape do not
recompile, and `vmap` runs many posteriors side by side.

References:
    Del Moral, Doucet and Jasra (2012), An adaptive sequential Monte Carlo method.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from unle.errors import InputError
from unle.samplers.kernels import LogDensity
from unle.samplers.particles import Room, ess, largest_log_power, log_mean_exp, systematic_indices
from unle.samplers.step_size import StepSizeState
from unle.samplers.sweep import LANGEVIN_STEP, SurrogateSweep, Sweep, TemperedParticles, unevaluated

SMALLEST_LOG_INCREMENT = -25.0  # of the temperature: log-likelihoods may span e^25
BISECTIONS = 30
LARGEST_UNIFORM = 1 - 2.0**-24  # the float32 before 1: random numbers of both signs, with no infinite normal among them
MIXED_CORRELATION = 0.5  # correlation with the start of the temperature, below which particles count as mixed


class TemperedPath(NamedTuple):
    """What happened at each temperature; NaN beyond the number of temperatures that were needed."""

    temperature: Float[Array, " temperature"]  # beta, rising from 0 to 1
    ess: Float[Array, " temperature"]  # ESS/N after reweighting to this temperature
    # mean acceptance of the walks; not defined at temperature 0, where nothing moves
    walk_acceptance: Float[Array, " temperature"]
    langevin_acceptance: Float[Array, " temperature"]  # mean acceptance of the Langevin moves, likewise
    step_size: Float[Array, " temperature"]  # the Langevin step size, in whitened coordinates


class TemperedRun(NamedTuple):
    """The outcome of a tempered run."""

    # equally weighted draws of the target, `keep` of each particle; zeros beyond `wanted`
    draws: Float[Array, "particle draw dim"]
    particles: TemperedParticles  # the particles at the end, with both parts of their log-density
    # log of the integral of r e^l. -inf if l was not finite at any draw of the reference: then the draws must not be
    # used.
    log_evidence: Float[Array, ""]
    # how many temperatures were needed. If it equals `max_temperatures` the last step was forced, and the last
    # `path.ess` says how badly.
    n_temperatures: Int[Array, ""]
    path: TemperedPath  # what happened at each temperature


class _Settings(NamedTuple):
    log_reference: LogDensity
    log_tilt: LogDensity
    sweep: Sweep | SurrogateSweep
    ess_target: float
    max_sweeps: int
    settle: int
    max_temperatures: int


class _Progress(NamedTuple):
    key: PRNGKeyArray
    particles: TemperedParticles
    temperature: Float[Array, ""]
    log_evidence: Float[Array, ""]
    step_state: StepSizeState
    n_temperatures: Int[Array, ""]
    origin: Float[Array, "particle dim"]  # where the particles were before the sweeps at this temperature
    n_sweeps: Int[Array, ""]  # at this temperature
    n_final: Int[Array, ""]  # sweeps at temperature 1, beyond the first
    draws: Float[Array, "draw particle dim"]
    path: Float[Array, "temperature 5"]  # a `TemperedPath` by columns


def tempered_smc(
    key: PRNGKeyArray,  # randomness of the run
    positions: Float[Array, "particle dim"],  # independent draws of the reference r; 1000 or more
    log_reference: LogDensity,  # log r of one point; normalised, if the evidence is to be
    log_tilt: LogDensity,  # l of one point, finite almost everywhere in the support of the target
    *,
    sweep: Sweep | SurrogateSweep | None = None,  # the moves made at each temperature, and between kept draws
    ess_target: float = 0.6,  # ESS/N to come down to with each temperature. Higher is slower and safer.
    # at each temperature. A new temperature is tried as soon as the positions correlate by less than one half, in every
    # coordinate, with those before the sweeps.
    max_sweeps: int = 3,
    settle: int = 2,  # further sweeps at temperature 1 before the first draw is kept
    keep: int | Room = 1,  # draws to keep of each particle
    max_temperatures: int = 60,  # of which the first is 0, and the last goes to 1 whatever the ESS
) -> TemperedRun:
    """Draw from r e^l, starting from draws of r. Meant to be called inside `jax.jit`.

    Example:
        >>> import jax, jax.numpy as jnp, jax.random as jr
        >>> from unle.samplers import tempered_smc
        >>> prior = jr.normal(jr.key(0), (1000, 1))
        >>> log_normal = lambda u: -0.5 * jnp.sum(u**2 + jnp.log(2 * jnp.pi))
        >>> def posterior(key, x):
        ...     log_likelihood = lambda u: log_normal((x - u) / 0.1) - jnp.log(0.1)
        ...     return tempered_smc(key, prior, log_normal, log_likelihood)
        >>> run = jax.jit(posterior)(jr.key(1), 1.5)
        >>> bool(abs(run.draws.mean() - 1.5 / 1.01) < 0.02)
        True
    """
    sweep = Sweep() if sweep is None else sweep
    settings = _Settings(log_reference, log_tilt, sweep, ess_target, max_sweeps, settle, max_temperatures)
    keep, wanted = Room.of(keep)
    _check(positions, keep, settings)
    zero, zero_count = jnp.zeros(()), jnp.zeros((), int)
    start = _Progress(
        key=key,
        particles=unevaluated(positions),
        temperature=zero,
        log_evidence=zero,
        step_state=LANGEVIN_STEP.init(positions.shape[0]),  # one step size for all particles
        n_temperatures=zero_count,
        origin=positions,
        n_sweeps=zero_count,
        n_final=zero_count,
        draws=jnp.zeros((keep, *positions.shape)),
        path=jnp.full((max_temperatures, len(TemperedPath._fields)), jnp.nan),
    )

    last = settle + (keep if wanted is None else jnp.minimum(wanted, keep))

    def unfinished(progress: _Progress):
        return (progress.temperature < 1.0) | (progress.n_final < last)

    end = jax.lax.while_loop(unfinished, lambda progress: _one_sweep(progress, settings), start)
    draws = jnp.swapaxes(end.draws, 0, 1)
    return TemperedRun(draws, end.particles, end.log_evidence, end.n_temperatures, TemperedPath(*end.path.T))


def _one_sweep(progress: _Progress, settings: _Settings) -> _Progress:
    """Go to the next temperature if the particles have mixed at this one, then move them once."""
    particles, temperature, sweep = progress.particles, progress.temperature, settings.sweep
    n, dim = particles.positions.shape
    key, key_numbers = jr.split(progress.key)
    numbers = jr.uniform(
        key_numbers, (1 + sweep.numbers_needed(n, dim),), minval=-LARGEST_UNIFORM, maxval=LARGEST_UNIFORM
    )
    is_tempering = temperature < 1.0
    is_mixed = _correlation(progress.origin, particles.positions) < MIXED_CORRELATION
    is_new = is_tempering & (is_mixed | (temperature == 0.0) | (progress.n_sweeps % settings.max_sweeps == 0))
    is_first = progress.n_temperatures == 0
    is_last = progress.n_temperatures == settings.max_temperatures - 1

    raised = _next_temperature(particles.log_tilt, temperature, settings.ess_target)
    raised = jnp.where(is_last, 1.0, jnp.where(is_first, 0.0, raised))  # the first pass evaluates the particles at 0
    log_weights = _log_weights(particles.log_tilt, raised - temperature)
    chosen = systematic_indices(0.5 + 0.5 * numbers[0], log_weights)
    ancestors = jnp.where(is_new & ~is_first, chosen, jnp.arange(n))
    resampled = jax.tree.map(lambda leaf: leaf[ancestors], particles)
    temperature = jnp.where(is_new, raised, temperature)
    particles, step_state, info = sweep(
        numbers[1:],
        resampled,
        settings.log_reference,
        settings.log_tilt,
        temperature=temperature,
        step_state=progress.step_state,
    )
    step_state = jax.tree.map(lambda new, old: jnp.where(is_first, old, new), step_state, progress.step_state)

    # Further sweeps at the same temperature overwrite its entry in the path, all but the ESS.
    entry = progress.n_temperatures - jnp.where(is_new, 0, 1)
    share = jnp.where(is_new, ess(log_weights), progress.path[entry, TemperedPath._fields.index("ess")])
    row = jnp.stack(TemperedPath(temperature, share, *info, jnp.mean(LANGEVIN_STEP.value(step_state))))
    n_final = progress.n_final + jnp.where(is_tempering, 0, 1)
    return _Progress(
        key=key,
        particles=particles,
        temperature=temperature,
        log_evidence=progress.log_evidence + jnp.where(is_new, log_mean_exp(log_weights), 0.0),
        step_state=step_state,
        n_temperatures=entry + 1,
        origin=jnp.where(is_new, resampled.positions, progress.origin),
        n_sweeps=jnp.where(is_new, 1, progress.n_sweeps + 1),
        n_final=n_final,
        draws=_keep_draw(progress.draws, particles.positions, n_final - settings.settle - 1),
        path=progress.path.at[entry].set(row),
    )


def _log_weights(log_tilt, increment):
    """Return log v_i = (beta' - beta) l_i; particles with l = -inf keep weight zero, also for an increment of 0."""
    return jnp.where(jnp.isfinite(log_tilt), increment * log_tilt, -jnp.inf)


def _next_temperature(log_tilt, temperature, ess_target):
    """Find the largest beta' <= 1 at which ESS/N, relative to the particles alive, is still the target."""
    wanted = ess_target * jnp.mean(1.0 * jnp.isfinite(log_tilt))
    end = jnp.log(jnp.maximum(1.0 - temperature, jnp.exp(SMALLEST_LOG_INCREMENT)))
    start = jnp.full_like(end, SMALLEST_LOG_INCREMENT)
    weights = partial(_log_weights, log_tilt)
    low = largest_log_power(weights, wanted, start, end, bisections=BISECTIONS)
    return jnp.where(low == end, 1.0, jnp.minimum(temperature + jnp.exp(low), 1.0))


def _correlation(before, after):
    """Return the largest correlation between old and new values of any one coordinate."""
    before, after = before - jnp.mean(before, axis=0), after - jnp.mean(after, axis=0)
    product = jnp.mean(before * after, axis=0)
    widths = jnp.sqrt(jnp.mean(before**2, axis=0) * jnp.mean(after**2, axis=0))
    return jnp.max(product / jnp.where(widths > 0, widths, 1.0))


def _keep_draw(draws, positions, number):
    """Write the positions into the record of draws; before the first draw the number is negative."""
    slot = jnp.clip(number, 0, draws.shape[0] - 1)
    return draws.at[slot].set(jnp.where(number >= 0, positions, draws[slot]))


def _check(positions, keep: int, settings: _Settings) -> None:
    if positions.ndim != 2 or positions.shape[0] < 2:
        raise InputError(
            f"expected positions of shape (particle, dim) with 2 particles or more; got {positions.shape}; "
            "try 2000 draws of the reference"
        )
    if not 0 < settings.ess_target < 1:
        raise InputError(f"expected 0 < ess_target < 1; got {settings.ess_target}; try ess_target=0.6")
    if settings.settle < 0 or min(settings.max_sweeps, keep, settings.max_temperatures - 1) < 1:
        raise InputError(
            "expected settle >= 0, max_sweeps and keep >= 1 and max_temperatures >= 2; "
            f"got {settings.settle}, {settings.max_sweeps}, {keep} and {settings.max_temperatures}; try the defaults"
        )
