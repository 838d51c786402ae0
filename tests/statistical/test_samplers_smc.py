"""Sequential Monte Carlo against exact answers.

Every estimate is made by independent islands of particles; their spread gives its standard error, whatever the
correlations inside an island.
"""

import blackjax
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from blackjax.smc.resampling import systematic
from jax.scipy.special import gammaln, ndtr
from jax.scipy.stats import norm

from unle.posterior import TemperedSmc
from unle.samplers import Particles, Path, SharedStepSize, bridge, run_chains, tempered_smc

Z = 4.5  # Student's t with 15 degrees of freedom: false alarms 4e-4 per comparison
ISLANDS, PARTICLES = 16, 400


def t_scores(estimates, exact):
    """Return the t statistic of estimates (island, quantity)."""
    estimates = np.asarray(estimates, dtype=float)
    return (estimates.mean(axis=0) - exact) / (estimates.std(axis=0, ddof=1) / np.sqrt(len(estimates)))


def log_reference(u):
    return jnp.sum(norm.logpdf(u))


# --- posteriors under a standard normal reference, with what is known about them exactly


def skewed(u):
    """A count of 7 under a log-normal rate; and 0.95 +- 0.1, observed of something confined to [0, 1]."""
    return 7.0 * u[0] - jnp.exp(u[0]) - gammaln(8.0) + norm.logpdf(0.95, ndtr(u[1]), 0.1)


def skewed_statistics(u):
    return jnp.array([u[0], u[0] ** 2, u[1], ndtr(u[1])])


def by_quadrature():
    with jax.enable_x64(True):
        grid = jnp.linspace(-8.0, 8.0, 200_001)
        points = jnp.stack([grid, jnp.zeros_like(grid)], 1), jnp.stack([jnp.zeros_like(grid), grid], 1)
        zero = skewed(jnp.zeros(2))
        logs = [np.asarray(jax.vmap(skewed)(p) + norm.logpdf(grid)) for p in points]
        logs[1] = logs[1] - float(zero)  # each factor once
        weights = [np.exp(log) for log in logs]
        step = float(grid[1] - grid[0])
        mean = [lambda f, w=w: float((w * np.asarray(f)).sum() / w.sum()) for w in weights]
        exact = [mean[0](grid), mean[0](grid**2), mean[1](grid), mean[1](ndtr(grid))]
        return np.array(exact), float(sum(np.log(w.sum() * step) for w in weights))


SKEWED_EXACT, SKEWED_EVIDENCE = by_quadrature()

RING_WEIGHTS, RADII, THICKNESS = np.array([0.3, 0.7]), np.array([0.6, 0.3]), 0.02
CENTRES = np.array([[-1.0, 0.0], [0.8, 0.4]])


def rings(u):
    """The posterior is exactly a mixture of two thin rings, of unequal weight and size."""
    radius = jnp.sqrt(jnp.sum((u - CENTRES) ** 2, axis=1))
    density = norm.logpdf(radius, RADII, THICKNESS) - jnp.log(2 * jnp.pi * radius)
    return jax.nn.logsumexp(jnp.log(RING_WEIGHTS) + density) - log_reference(u)


def rings_statistics(u):
    """Which ring; on it the radius, its spread, and the direction."""
    offset = u - CENTRES
    radius = jnp.sqrt(jnp.sum(offset**2, axis=1))
    first = jnp.abs(radius[0] - RADII[0]) < jnp.abs(radius[1] - RADII[1])
    ring = jnp.where(first, 0, 1)
    error = (radius[ring] - jnp.asarray(RADII)[ring]) / THICKNESS
    return jnp.array([1.0 * first, error, error**2, offset[ring, 0] / radius[ring], offset[ring, 1] / radius[ring]])


RINGS_EXACT = np.array([0.3, 0.0, 1.0, 0.0, 0.0])

DIM = 6
MIXING = np.random.default_rng(0).normal(size=(DIM, DIM)) / np.logspace(-2.5, -0.5, DIM)[:, None]
OBSERVED = MIXING @ np.random.default_rng(1).normal(size=DIM)
COVARIANCE = np.linalg.inv(np.eye(DIM) + MIXING.T @ MIXING)
MEAN = COVARIANCE @ MIXING.T @ OBSERVED
WHITE = jnp.asarray(np.linalg.inv(np.linalg.cholesky(COVARIANCE)), "float32")


def linear_gaussian(u):
    """A narrow, strongly correlated Gaussian; sensitivities span two decades."""
    return jnp.sum(norm.logpdf(jnp.asarray(OBSERVED, "float32") - jnp.asarray(MIXING, "float32") @ u))


def linear_gaussian_statistics(u):
    white = WHITE @ (u - jnp.asarray(MEAN, "float32"))
    return jnp.concatenate([white, white**2])


def gaussian_evidence():
    covariance = np.eye(DIM) + MIXING @ MIXING.T
    quadratic = OBSERVED @ np.linalg.solve(covariance, OBSERVED)
    return -0.5 * (quadratic + np.linalg.slogdet(2 * np.pi * covariance)[1])


POSTERIORS = {
    "skewed, confined, two modes": (
        4,
        lambda u: skewed(u[:2]) + rings(u[2:]),
        lambda u: jnp.concatenate([skewed_statistics(u[:2]), rings_statistics(u[2:])]),
        np.concatenate([SKEWED_EXACT, RINGS_EXACT]),
        SKEWED_EVIDENCE,
    ),
    "correlated Gaussian": (
        DIM,
        linear_gaussian,
        linear_gaussian_statistics,
        np.repeat([0.0, 1.0], DIM),
        gaussian_evidence(),
    ),
}


@pytest.mark.parametrize("name", POSTERIORS)
def test_tempered_smc_is_right(name):
    dim, log_tilt, statistics, exact, log_evidence = POSTERIORS[name]

    def island(key):
        key_prior, key_run = jr.split(key)
        run = tempered_smc(key_run, jr.normal(key_prior, (PARTICLES, dim)), log_reference, log_tilt, keep=2)
        return jax.vmap(jax.vmap(statistics))(run.draws), run

    values, run = jax.jit(jax.vmap(island))(jr.split(jr.key(0), ISLANDS))
    estimates = np.asarray(values).mean(axis=(1, 2))
    assert (abs(t_scores(estimates, exact)) < Z).all(), t_scores(estimates, exact)
    # Quality: not much worse than as many independent draws (1 would be as good).
    inflation = estimates.std(axis=0) * np.sqrt(PARTICLES) / np.asarray(values).std(axis=(0, 1, 2))
    assert inflation.max() < 2, inflation
    # The evidence is unbiased itself, not its logarithm.
    ratio = np.exp(np.asarray(run.log_evidence, dtype=float) - log_evidence)
    assert ratio.std() < 0.3
    assert abs(t_scores(ratio, 1.0)) < Z, ratio
    assert abs(t_scores(ratio * 1.5, 1.0)) > Z  # companion: an evidence off by a half is seen


TARGET = jnp.array([1.0, 0.3, 1.0])  # an observation, its standard deviation, and the power of its likelihood
CHEAP = {  # in place of that
    "close": jnp.array([1.1, 0.35, 1.0]),
    "narrower": jnp.array([0.9, 0.22, 1.0]),
    "far": jnp.array([0.0, 0.4, 1.0]),
    "far and narrow": jnp.array([0.4, 0.15, 1.0]),
    "constant": jnp.array([0.0, 1.0, 0.0]),
}
LED = TemperedSmc(islands=ISLANDS, particles=ISLANDS * PARTICLES)


def likelihood_of(observed):
    return lambda u: observed[2] * jnp.sum(norm.logpdf(observed[0], u, observed[1]))


@jax.jit  # what is observed is an argument: two programs of each dimension serve for all of `CHEAP`
def sampled_through(prior_draws, observed, cheap):
    """Return draws, particles led to the posterior of `observed` by that of `cheap`; straight there, if it is None."""
    log_cheap = None if cheap is None else likelihood_of(cheap)
    n = ISLANDS * PARTICLES
    return LED(jr.key(0), prior_draws, log_reference, likelihood_of(observed), n, log_cheap=log_cheap)


@pytest.mark.parametrize(("name", "dim"), [*((name, 2) for name in CHEAP), ("narrower", 8)])
def test_draws_do_not_depend_on_the_cheap_density_that_leads_to_them(name, dim):
    prior_draws = jr.normal(jr.key(1), (ISLANDS * PARTICLES, dim))
    sampled = sampled_through(prior_draws, TARGET, CHEAP[name])
    variance = 1 / (1 + 1 / 0.3**2)
    z = (np.asarray(sampled.draws) - variance / 0.3**2) / np.sqrt(variance)
    scores = t_scores(np.concatenate([z.mean(axis=1), (z**2).mean(axis=1)], axis=1), np.repeat([0.0, 1.0], dim))
    assert (abs(scores) < Z).all(), scores
    log_evidence = dim * norm.logpdf(1.0, 0.0, np.sqrt(1 + 0.3**2))
    ratio = np.exp(np.asarray(sampled.log_evidence, float) - float(log_evidence))
    if name == "far and narrow":  # a known limit: few particles set out for the target, and carry all the weight
        assert 0.6 < ratio.mean() < 1.1
    else:
        assert abs(t_scores(ratio, 1.0)) < Z, ratio
    # Companion: the cheap density's own posterior is not this one.
    wrong = sampled_through(prior_draws, CHEAP[name], None)
    z = (np.asarray(wrong.draws) - variance / 0.3**2) / np.sqrt(variance)
    wrong_scores = t_scores(np.concatenate([z.mean(axis=1), (z**2).mean(axis=1)], axis=1), np.repeat([0.0, 1.0], dim))
    assert abs(wrong_scores).max() > Z


def test_local_chains_get_the_weights_of_modes_wrong():
    """Companion: chains from prior draws weigh a mode by its basin, however long they run."""
    start = jr.normal(jr.key(0), (1000, 2))
    run = jax.jit(lambda key: run_chains(key, start, lambda u: log_reference(u) + rings(u), steps=400).positions)(
        jr.key(1)
    )
    share = float(jax.vmap(rings_statistics)(run)[:, 0].mean())
    assert abs(share - 0.3) > 5 * np.sqrt(0.21 / 1000)


def test_an_independent_implementation_agrees():
    """blackjax moves before it reweights: its particles are to be read with their weights."""
    schedule = jnp.array([0.02, 0.06, 0.15, 0.35, 0.65, 1.0])
    smc = blackjax.tempered_smc(
        log_reference,
        skewed,
        blackjax.mala.build_kernel(),
        blackjax.mala.init,
        {"step_size": jnp.array([0.1])},
        systematic,
        num_mcmc_steps=20,
    )

    def island(key):
        key_prior, key_run = jr.split(key)
        state = smc.init(jr.normal(key_prior, (PARTICLES, 2)))

        def one(state, step):
            key, temperature = step
            state, info = smc.step(key, state, temperature)
            return state, info.log_likelihood_increment

        state, increments = jax.lax.scan(one, state, (jr.split(key_run, 6), schedule))
        return state.weights @ jax.vmap(skewed_statistics)(state.particles), increments.sum()

    theirs, log_z = jax.jit(jax.vmap(island))(jr.split(jr.key(5), ISLANDS))
    assert (abs(t_scores(theirs, SKEWED_EXACT)) < Z).all()
    assert abs(t_scores(np.exp(np.asarray(log_z) - SKEWED_EVIDENCE), 1.0)) < Z


# --- bridge


def log_from(x):
    return -0.5 * jnp.sum(x**2)


def log_to(x):
    """N(3, 1/2^2), multiplied by e^1.7: log Z_1 - log Z_0 = 1.7 + log 1/2."""
    return 1.7 - 2.0 * jnp.sum((x - 3.0) ** 2)


LOG_Z = 1.7 + np.log(0.5)


def test_bridge_is_right_with_its_weights():
    def island(key):
        key_start, key_run = jr.split(key)
        start = Particles.equal(jr.normal(key_start, (PARTICLES, 1)))
        particles, info = bridge(key_run, start, Path(log_from, log_to), temperatures=10)
        x = particles.positions[:, 0]
        return jnp.array([particles.mean(x), particles.mean((x - 3.0) ** 2)]), info

    values, info = jax.jit(jax.vmap(island))(jr.split(jr.key(0), ISLANDS))
    assert (abs(t_scores(values, [3.0, 0.25])) < Z).all()
    assert abs(t_scores(np.exp(np.asarray(info.log_z) - LOG_Z), 1.0)) < Z
    assert (info.resampled > 0).all()
    assert (info.resampled < 1).all()  # weights were kept in between, and were needed
    np.testing.assert_allclose(info.acceptance, 0.574, atol=0.15)


def test_one_step_bridges_carry_weights_and_log_z_along_a_drifting_density():
    """As in training: the density moves a little, ten times; weights make up for moves that are too short."""
    means = jnp.linspace(0.0, 1.0, 11)[1:]
    short = SharedStepSize(initial=1e-3, largest=1e-3)

    def island(key):
        key_start, key_run = jr.split(key)

        def one(carry, step):
            particles, step_state, previous, log_z = carry
            key, mean = step
            particles, info = bridge(
                key,
                particles,
                Path(
                    lambda x: -0.5 * jnp.sum((x - previous) ** 2),
                    lambda x: 0.1 - 0.5 * jnp.sum((x - mean) ** 2),  # each step multiplies by e^0.1
                ),
                moves=1,
                step_size=short,
                step_state=step_state,
                ess_threshold=0.1,
            )
            return (particles, info.step_state, mean, log_z + info.log_z), None

        start = Particles.equal(jr.normal(key_start, (PARTICLES, 1)))
        carry = (start, short.init(PARTICLES), jnp.zeros(()), jnp.zeros(()))
        (particles, _, _, log_z), _ = jax.lax.scan(one, carry, (jr.split(key_run, 10), means))
        x = particles.positions[:, 0]
        return jnp.array([particles.mean(x), particles.mean((x - 1.0) ** 2), jnp.mean(x)]), log_z

    values, log_z = jax.jit(jax.vmap(island))(jr.split(jr.key(0), ISLANDS))
    assert (abs(t_scores(values[:, :2], [1.0, 1.0])) < Z).all()
    assert abs(t_scores(np.exp(np.asarray(log_z) - 1.0), 1.0)) < Z
    # Companion: without the weights the particles lag behind.
    assert t_scores(values[:, 2], 1.0) < -2 * Z
