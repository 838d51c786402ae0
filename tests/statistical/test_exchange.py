"""The exchange algorithm against exact posteriors, and its auxiliary samplers against exact laws.

Every test of the posterior has a companion in which Z(theta) is left out: it must fail the same comparison.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from blackjax.diagnostics import effective_sample_size

from unle.posterior import Exchange, Posterior
from unle.samplers import (
    ChainInner,
    ExchangeTarget,
    Family,
    Langevin,
    RejectionInner,
    SurrogateWalks,
    TemperedInner,
    Walk,
    exchange,
    log_mean_exp,
)
from unle.samplers.inner import _moved

Z = 4.0  # false alarms 6e-5 per comparison


def z_scores(values):
    """Return how many standard errors the mean of each column (chain, draw, column) is from zero."""
    n_effective = np.asarray(effective_sample_size(jnp.asarray(values)))
    assert n_effective.min() > 800
    return np.abs(values.mean((0, 1))) / (values.std((0, 1)) / np.sqrt(n_effective))


def log_normal(v):
    return -0.5 * jnp.sum(v**2 + jnp.log(2 * jnp.pi))


def normals(key, n):
    return jr.normal(key, (n,)).reshape(n, 1)


def test_the_default_sampler_on_several_rows(known):
    sampler = Exchange(chains=200, particles=400, warm_up=20, thin=2)
    draws = Posterior(known.prior, known.likelihood, sampler).sample(known.observed, 6000, seed=1)
    assert draws.values.shape == (200, 30, 2)
    assert z_scores(known.exact.scores(draws.values)).max() < Z
    assert draws.info["acceptance"] > 0.5
    assert abs(draws.info["inner_drift"]) < 5 * draws.info["inner_drift_error"]
    assert draws.info["inner_trusted"] == 1


def by_hand(known, proposal, **options):
    """Return a compiled run of chains from prior draws, with Z counted `with_z` times: 1 is right, 0 leaves it out."""
    model = known.likelihood
    data = jnp.asarray(known.observed, jnp.float32)
    pool = normals(jr.key(9), 64)

    @jax.jit
    def run(key, with_z):
        family = Family(lambda u, v: with_z * model.log_tilt(u, v), model.log_reference, model.draws)
        key_start, key_run = jr.split(key)
        target = ExchangeTarget(
            log_normal,
            lambda u: jnp.sum(jax.vmap(lambda x: model.log_unnormalised(u, x))(data)),
            family,
            rows=len(data),
            log_z=lambda u: log_mean_exp(jax.vmap(lambda v: family.log_tilt(u, v))(pool)),
        )
        return exchange(
            key_run,
            jr.normal(key_start, (200, 2)),
            target,
            proposal=proposal,
            warm_up=60,
            keep=30,
            thin=4,
            **options,
        )

    return run


def test_bridged_walks_and_a_companion_without_z(known):
    run = by_hand(known, Walk(), bridges=2)
    assert z_scores(known.exact.scores(run(jr.key(1), 1.0).draws)).max() < Z
    wrong = known.exact.scores(run(jr.key(1), 0.0).draws).mean((0, 1))
    assert np.abs(wrong).max() > 2  # several posterior standard deviations off, not standard errors


@pytest.mark.slow
@pytest.mark.parametrize("proposal", [Walk(), Langevin(), SurrogateWalks(moves=5)], ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("bridges", [0, 3])
def test_every_proposal(known, proposal, bridges):
    run = by_hand(known, proposal, bridges=bridges)(jr.key(2), 1.0)
    assert z_scores(known.exact.scores(run.draws)).max() < Z
    assert run.acceptance > 0.2


def bounded_tilt(u, v):
    return -1.5 * jnp.tanh(u[0] * v[0] + 0.5 * u[0] * v[0] ** 2 - 0.3 * u[0])


def bounded_posterior():
    """Return mean and variance of theta ~ N(0, 1) given w = 0.7, by quadrature in w and theta."""
    theta, v = jnp.linspace(-5, 5, 801), jnp.linspace(-8, 8, 1601)
    tilts = jax.vmap(lambda u: jax.vmap(lambda w: bounded_tilt(u[None], w[None]))(v))(theta)
    z = jnp.sum(jnp.exp(tilts - 0.5 * v**2), axis=1)
    log_f = jax.vmap(lambda u: bounded_tilt(u[None], jnp.array([0.7])))(theta)
    weights = np.asarray(jnp.exp(log_f - 0.5 * theta**2) / z, float)
    weights /= weights.sum()
    grid = np.asarray(theta, float)
    return weights @ grid, weights @ grid**2 - (weights @ grid) ** 2


@pytest.mark.parametrize(
    "inner",
    [
        pytest.param(RejectionInner(1.5), id="exact"),
        pytest.param(TemperedInner(), id="tempered", marks=pytest.mark.slow),
    ],
)
def test_a_bounded_energy_with_exact_and_with_tempered_auxiliary_draws(inner):
    family = Family(bounded_tilt, log_normal, normals)

    @jax.jit
    def run(key):
        return exchange(
            key,
            jnp.linspace(-1, 1, 200)[:, None],
            ExchangeTarget(log_normal, lambda u: bounded_tilt(u, jnp.array([0.7])), family),
            inner=inner,
            warm_up=20,
            keep=40,
            thin=3,
        )

    result = run(jr.key(3))
    mean, variance = bounded_posterior()
    draws = np.asarray(result.draws, float)[..., 0]
    both = np.stack([draws - mean, (draws - mean) ** 2 - variance], axis=-1)
    assert z_scores(both).max() < Z
    assert z_scores(both - [0.09, 0.0]).max() > Z  # what leaving Z out would do
    assert result.inner.trusted == 1


def test_a_bound_that_is_too_low_is_reported():
    family = Family(bounded_tilt, log_normal, normals)
    drawn = jax.vmap(lambda key: RejectionInner(0.2).draw(key, jnp.array([2.0]), family, jnp.ones(1)))
    assert not drawn(jr.split(jr.key(0), 100)).trusted.all()


def two_peaks(_, v):
    """Tilt N(0, 3^2) into 0.8 N(-3, 0.3^2) + 0.2 N(4, 0.3^2)."""
    peaks = jnp.log(jnp.array([0.8, 0.2])) - 0.5 * jnp.square((v[0] - jnp.array([-3.0, 4.0])) / 0.3)
    return jax.scipy.special.logsumexp(peaks) + 0.5 * jnp.square(v[0] / 3)


def peaks_drawn(inner, n=2000):
    wide = Family(two_peaks, lambda v: log_normal(v / 3) - jnp.log(3.0), lambda key, n: 3 * normals(key, n))
    sizes = jnp.full(inner.rungs, 0.05)
    return jax.jit(jax.vmap(lambda key: inner.draw(key, None, wide, sizes)))(jr.split(jr.key(4), n))


def test_auxiliary_draws_visit_both_modes_with_their_weights():
    drawn = peaks_drawn(TemperedInner())
    v = np.asarray(drawn.v, float)[:, 0]
    error = np.sqrt(0.2 * 0.8 / len(v))
    assert abs((v > 0).mean() - 0.2) < Z * error
    assert abs(v[v > 0].mean() - 4) < Z * 0.3 / np.sqrt((v > 0).sum())
    assert abs(v[v < 0].std() - 0.3) < 0.02
    change = np.asarray(drawn.tilt - drawn.early_tilt, float)
    assert abs(change.mean()) < 5 * change.std() / np.sqrt(len(v))
    # Without fresh draws a chain stays in the mode it fell into, and that has nothing to do with the weights.
    local = np.asarray(peaks_drawn(TemperedInner(candidates=0)).v)[:, 0]
    assert abs((local > 0).mean() - 0.2) > 2 * Z * error


class FarWalk(Walk):
    """Steps of length 2 in whitened coordinates: four times the initial step size, which no warm-up changes."""

    def propose(self, key, state, target, whitening, archive, step_size):
        return super().propose(key, state, target, whitening, archive, 4 * step_size)


@pytest.mark.slow
def test_bridging_raises_the_acceptance():
    """Long steps of a fixed size: the same chains, with and without densities in between."""
    # Z(u) = exp(5 u^2), and the ratio of two of them has a log of variance 10 (u - u')^2.
    family = Family(
        lambda u, v: u[0] * jnp.sum(v),
        log_normal,
        lambda key, n: jr.normal(key, (10 * n,)).reshape(n, 10),
    )
    inner = TemperedInner(temperatures=2, settle=1, moves=1)

    def rate(bridges):
        run = jax.jit(
            lambda key: exchange(
                key,
                jnp.linspace(-0.5, 0.5, 200)[:, None],
                ExchangeTarget(log_normal, lambda u: jnp.zeros(()), family),
                proposal=FarWalk(),
                inner=inner,
                bridges=bridges,
                keep=20,
            )
        )
        return float(run(jr.key(5)).acceptance)

    assert rate(10) > rate(0) + 0.03


class Untuned(ChainInner):
    """A chain that keeps the step size that it is given."""

    def _tuned(self, keys, v, density, step_size):
        v, acceptance = _moved(self.kernel, keys, v, density, step_size)
        return v, step_size, acceptance


@pytest.mark.parametrize(("inner", "is_right"), [(ChainInner, True), (Untuned, False)], ids=["tuned", "untuned"])
def test_a_chain_finds_its_step_for_densities_of_any_width(inner, is_right):
    family = Family(lambda c, v: -0.5 * jnp.sum((v / jnp.exp(c)) ** 2 - v**2), log_normal, normals)
    chain, n = inner(jnp.zeros((1, 1)), moves=100), 2000  # g(. | c) is N(0, exp(2 c))

    @jax.jit
    def variance_over_exact(c):
        draws = jax.vmap(lambda key: chain.draw(key, c, family, jnp.array([0.5])).v)(jr.split(jr.key(3), n))
        return jnp.mean((draws / jnp.exp(c)) ** 2)

    ratios = np.array([variance_over_exact(c) for c in (-5.0, 0.0, 2.0)])
    error = np.sqrt(2 / n)  # of the mean square of n independent normals
    assert (np.abs(ratios - 1).max() < Z * error) == is_right
