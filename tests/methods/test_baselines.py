"""NLE, SNLE and SMNLE on a problem whose posterior is known: theta ~ N(0, 1), x = theta + N(0, 1/4)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unle.errors import InputError
from unle.methods import NLE, SMNLE, SNLE
from unle.models import GivenValid, Maf, Normalised, ReferencedLikelihood
from unle.posterior import Exchange, Posterior, TemperedSmc
from unle.samplers import Sweep
from unle.simulators import batched
from unle.space import Prior
from unle.train import Descent, FixedBase, GaussianTraining, LogNormaliserTraining, ScoreMatching

PRIOR = Prior.normal([0.0], [1.0], names=["a"])
NOISE = 0.5
MEAN, SD = 0.8 / 1.25, np.sqrt(0.2)  # of the posterior at x_o = 0.8
X_O = np.array([0.8])
GRID = np.linspace(-4, 4, 401)
FLOW = Maf(layers=2, width=8, depth=1)
SHORT = Descent(iterations=400, batch=128, learning_rate=5e-3, patience=10)
SAMPLER = TemperedSmc(islands=2, particles=600, sweep=Sweep(walks=6, langevin=0), settle=1)
GAUSSIAN = GaussianTraining(width=8, depth=1, iterations=50, batch=64, chunk=50)
EXCHANGE = Exchange(chains=100, warm_up=10, particles=200, sweep=Sweep(walks=6, langevin=0))


@batched
def linear(theta, rng):
    return theta + NOISE * rng.normal(size=theta.shape)


@pytest.fixture(scope="module")
def pairs():
    theta = np.asarray(PRIOR.sample(800, seed=0), float)
    return theta, linear(theta, np.random.default_rng(1))


def moments(log_weights):
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    mean = weights @ GRID
    return mean, np.sqrt(weights @ (GRID - mean) ** 2)


@pytest.fixture
def exact(agreement):
    """The posterior as well as 800 pairs tell a straight line and its noise; a small network adds a twentieth."""
    return agreement(MEAN, SD, rows=800, leverage=1 + MEAN**2, allowance=0.05)


@pytest.fixture(scope="module")
def flow_posterior(pairs):
    notes = []
    nle = NLE(PRIOR, flow=FLOW, training=SHORT, sampler=SAMPLER)
    return nle.fit(pairs, seed=1, on_metrics=lambda **record: notes.append(record)), notes


def on_grid(posterior, x_o=X_O):
    return moments(np.asarray(posterior.log_prob(GRID[:, None], x_o), float))


def test_nle_finds_the_posterior(flow_posterior, exact):
    posterior, notes = flow_posterior
    assert max(exact.errors_of(*on_grid(posterior))) < 1
    assert exact.errors_of(*on_grid(posterior, X_O + NOISE))[0] > 1  # companion: other data
    assert notes[-1]["stage"] == "fitted"
    entropy = -0.5 - np.log(NOISE / np.sqrt(1.25)) - 0.5 * np.log(2 * np.pi)  # of standardised x given theta
    assert notes[-1]["held_out_log_likelihood"] == pytest.approx(entropy, abs=0.35)  # 80 rows: 3 standard errors


def test_a_flow_on_shuffled_pairs_returns_the_prior(pairs):
    theta, x = pairs
    shuffled = theta, np.random.default_rng(0).permutation(x)
    posterior = NLE(PRIOR, flow=FLOW, training=SHORT, sampler=SAMPLER).fit(shuffled, seed=1)
    _, sd = moments(np.asarray(posterior.log_prob(GRID[:, None], X_O), float))
    assert sd > 0.8


def test_a_fitted_flow_comes_back_from_a_file(flow_posterior, tmp_path):
    posterior, _ = flow_posterior
    posterior.save(tmp_path / "nle")
    again = Posterior.load(tmp_path / "nle")
    theta = GRID[:, None]
    np.testing.assert_array_equal(again.log_prob(theta, X_O), posterior.log_prob(theta, X_O))


def tiny_smnle(reference=GAUSSIAN, **parts):
    training = ScoreMatching(width=16, depth=2, descent=SHORT)
    parts = {"base": FixedBase(), "normaliser": None, **parts}  # as in the literature, unless told otherwise
    return SMNLE(PRIOR, training=training, reference=reference, sampler=EXCHANGE, **parts)


@pytest.fixture(scope="module")
def score_matched(pairs):
    return tiny_smnle(FixedBase(2.0)).fit(pairs, seed=1)


def by_quadrature(likelihood: ReferencedLikelihood):
    """Return log f(x_o | theta) - log Z(theta) on a grid, Z by a sum over x."""
    w = jnp.linspace(-6, 6, 601)[:, None]
    w_o = likelihood.prepare(jnp.asarray(X_O, jnp.float32))

    @jax.jit
    def one(theta):
        z = jax.scipy.special.logsumexp(jax.vmap(lambda w: likelihood.log_unnormalised(theta, w))(w))
        return likelihood.log_unnormalised(theta, w_o) - z

    return np.asarray(jax.vmap(one)(jnp.asarray(GRID[:, None], jnp.float32)), float)


def test_smnle_finds_the_likelihood(score_matched, exact):
    assert isinstance(score_matched.likelihood, ReferencedLikelihood)
    found = by_quadrature(score_matched.likelihood)
    assert max(exact.errors_of(*moments(found - 0.5 * GRID**2))) < 1
    assert exact.errors_of(*moments(found))[0] > 1  # companion: without the prior


def test_a_score_matched_energy_comes_back_from_a_file(score_matched, tmp_path):
    score_matched.save(tmp_path / "smnle")
    again = Posterior.load(tmp_path / "smnle")
    assert eqx.tree_equal(again, score_matched)


def test_the_reference_is_no_part_of_the_model(score_matched):
    """log f = log reference + log tilt at any point."""
    likelihood = score_matched.likelihood
    theta, w = jnp.array([0.3]), jnp.array([0.9])
    t = likelihood.standardise(theta)
    v = likelihood.whiten(t, w)
    both = likelihood.reference.log_density(t, w) + likelihood.log_tilt(t, v)
    np.testing.assert_allclose(both, likelihood.log_unnormalised(theta, w), rtol=1e-4)
    np.testing.assert_allclose(likelihood.unwhiten(t, v), w, rtol=1e-4)


def test_settings_that_make_no_sense_are_refused():
    with pytest.raises(InputError, match="at least one"):
        NLE(PRIOR, members=0)
    with pytest.raises(InputError, match=r"SNLE\(prior, simulator\)"):
        SNLE(PRIOR).run(X_O, budget=100)


@pytest.mark.slow
def test_exchange_and_a_learned_normaliser_agree_on_the_score_matched_posterior(pairs, score_matched, exact):
    draws = np.asarray(score_matched.sample(X_O, 2000, seed=2))
    assert exact.holds(draws), exact.errors(draws)
    normaliser = LogNormaliserTraining(particles=128, width=16, depth=1, iterations=300)
    posterior = tiny_smnle(sliced=True, normaliser=normaliser).fit(pairs, seed=1)
    assert isinstance(posterior.likelihood, Normalised)
    assert max(exact.errors_of(*on_grid(posterior))) < 1
    draws = np.asarray(posterior.sample(X_O, 2000, seed=2, sampler=SAMPLER))
    assert exact.holds(draws), exact.errors(draws)


@pytest.mark.slow
def test_smnle_on_a_fitted_base(pairs, exact):
    posterior = tiny_smnle(base=GAUSSIAN).fit(pairs, seed=1)
    assert max(exact.errors_of(*moments(by_quadrature(posterior.likelihood) - 0.5 * GRID**2))) < 1


@pytest.mark.slow
def test_snle_closes_in_on_the_observation(tmp_path, exact):
    snle = SNLE(PRIOR, linear, flow=FLOW, training=SHORT, sampler=SAMPLER)
    run = snle.run(X_O, budget=600, rounds=3, seed=0, directory=tmp_path)
    assert [done.simulations for done in run.rounds] == [200] * 3
    assert run.rounds[-1].width < 0.8 * run.rounds[0].width or run.rounds[-1].temperature == 1
    draws = np.asarray(run.posterior.sample(X_O, 2000, seed=1))
    assert exact.holds(draws), exact.errors(draws)
    again = snle.run(X_O, budget=600, rounds=3, seed=0, directory=tmp_path)  # nothing is simulated twice
    np.testing.assert_array_equal(again.simulations.theta, run.simulations.theta)
    run.posterior.save(tmp_path / "snle")
    theta = GRID[:50, None]
    loaded = Posterior.load(tmp_path / "snle")
    np.testing.assert_array_equal(loaded.log_prob(theta, X_O), run.posterior.log_prob(theta, X_O))


@pytest.mark.slow
def test_failed_simulations_enter_the_posterior(pairs):
    """Half of all theta < 0 fail: the flow of the valid pairs is weighed by 1/2 there, and by 1 elsewhere."""
    theta, x = pairs
    x = np.where((theta < 0) & (np.random.default_rng(2).random(theta.shape) < 0.5), np.nan, x)
    hasty = Descent(iterations=50)  # the flow itself does not matter here
    posterior = NLE(PRIOR, flow=FLOW, training=hasty, sampler=SAMPLER).fit((theta, x), seed=1)
    assert isinstance(posterior.likelihood, GivenValid)
    without = Posterior(PRIOR, posterior.likelihood.likelihood, SAMPLER)
    at = np.array([[-1.0], [1.0]])
    factor = np.asarray(posterior.log_prob(at, X_O), float) - np.asarray(without.log_prob(at, X_O), float)
    # About 400 rows on either side: a standard error of 0.05 in log P, and a smooth network for a step.
    assert factor[0] == pytest.approx(np.log(0.5), abs=0.25)
    assert factor[1] == pytest.approx(0.0, abs=0.1)
