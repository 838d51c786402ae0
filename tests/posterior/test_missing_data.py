"""Observations with gaps: exact where the model is Gaussian given theta, one sentence where it is not."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from unle.diagnose import FittedRun, run_checks
from unle.errors import InputError
from unle.models import (
    ConditionalGaussian,
    EnergyLikelihood,
    EnergyModel,
    Ensemble,
    Mlp,
    MlpEnergy,
    NeuralCorrection,
    NoEnergy,
    TwoViews,
    geometric_mean,
)
from unle.posterior import Draws, Posterior, run_sampler
from unle.space import Prior, fit_theta_space, fit_x_space

NAN = np.nan


@pytest.fixture(scope="module")
def model(linear_gaussian):
    matrix = np.array([[3.0, 0.0], [20.0, -50.0], [1.0, 1.0]])
    root = np.array([[2.0, 0.0, 0.0], [-3.0, 8.0, 0.0], [1.0, 2.0, 0.5]])
    return linear_gaussian._replace(matrix=matrix, offset=np.array([100.0, 1.0, 0.0]), root=root)


@pytest.fixture(scope="module")
def posterior(model):
    prior, likelihood, _ = model.fitted(np.random.default_rng(0))
    return Posterior(prior, likelihood)


def test_arguments_of_the_density_the_other_way_round_are_noticed(posterior):
    with pytest.raises(InputError, match="the other way round; try log_prob"):
        posterior.log_prob(np.array([100.0, 1.0, 0.0]), np.zeros(2))


def exact(model, theta, rows):
    """Return the log-likelihood of what is there of every row, for every theta."""
    total = np.zeros(len(theta))
    for row in rows:
        there = ~np.isnan(row)
        noise = multivariate_normal(np.zeros(there.sum()), model.noise[np.ix_(there, there)])
        total += noise.logpdf(row[there] - (theta @ model.matrix.T + model.offset)[:, there])
    return total


@pytest.mark.parametrize(
    "rows",
    [
        [[104.0, NAN, 1.0]],
        [[NAN, NAN, 1.0]],
        [[104.0, 35.0, NAN], [NAN, 30.0, 2.0], [103.0, 31.0, 0.5]],
    ],
    ids=["one", "two", "another in every row"],
)
def test_the_likelihood_of_what_is_there_is_exact(model, posterior, rows):
    theta = posterior.prior.sample(20, seed=1)
    got = np.asarray(posterior.log_prob(theta, rows), float) - np.asarray(posterior.prior.log_prob(theta), float)
    right = exact(model, theta.astype(float), np.array(rows))
    np.testing.assert_allclose(got - got[0], right - right[0], rtol=2e-3, atol=0.02)
    # Wrong twin: the mean of the simulations in place of what is missing.
    filled = np.where(np.isnan(rows), model.offset + model.matrix @ model.mean, rows)
    wrong = np.asarray(posterior.log_prob(theta, filled), float) - np.asarray(posterior.prior.log_prob(theta), float)
    assert np.abs((wrong - wrong[0]) - (right - right[0])).max() > 1


def test_draws_are_those_of_the_exact_posterior(model, posterior):
    x_o = np.array([104.0, NAN, 1.0])
    there = ~np.isnan(x_o)
    part = model._replace(matrix=model.matrix[there], offset=model.offset[there], root=model.root[there])
    mean, covariance = part.posterior(x_o[None, there])
    draws = posterior.sample(x_o, 8000, seed=0)
    error = np.sqrt(np.diag(covariance) / np.asarray(draws.summary()["ess_bulk"]))
    assert np.all(np.abs(np.asarray(draws, float).mean(axis=0) - mean) < 4.5 * error)
    wrong, _ = model.posterior(np.where(there, x_o, model.offset + model.matrix @ model.mean)[None])
    assert np.any(np.abs(np.asarray(draws, float).mean(axis=0) - wrong) > 6 * error)


def test_islands_with_gaps_take_turns(posterior, monkeypatch):
    """Side by side they waited for each other's threads for ever: JAX calls LAPACK in its pool, and waits in it."""
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    workers, pool = [], run_sampler.ThreadPoolExecutor
    monkeypatch.setattr(run_sampler, "ThreadPoolExecutor", lambda n: (workers.append(n), pool(n))[1])
    for x_o in ([104.0, NAN, 1.0], [104.0, 35.0, 1.0]):
        posterior.sample(x_o, 200)
    assert workers == [1, 2]


def test_a_covariance_that_depends_on_theta(key):
    """Against the same model with the missing coordinate integrated out numerically."""
    keys = jr.split(key, 3)
    theta, x = jr.normal(keys[0], (200, 2)), jr.normal(keys[1], (200, 3))
    net = Mlp(keys[2], 2, NeuralCorrection.outputs(3), width=8, depth=1)
    net = jax.tree.map(lambda leaf: leaf + 0.3 if eqx.is_inexact_array(leaf) else leaf, net)
    whitener = jnp.array([[1.0, 0.0, 0.0], [0.4, 1.2, 0.0], [-0.3, 0.2, 0.9]])
    base = ConditionalGaussian(jnp.zeros(3), jnp.ones((2, 3)) / 3, whitener, NeuralCorrection(net))
    spaces = fit_theta_space(np.asarray(theta)), fit_x_space(np.asarray(x))
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, 1.1 * leaf]), TwoViews(base))
    posterior = Posterior(Prior.normal([0, 0], 1.0), Ensemble(*spaces, EnergyModel(stacked, NoEnergy()), jnp.zeros(2)))
    grid = np.linspace(-40, 40, 8001)
    for one in np.asarray(theta[:4]):
        whole = np.stack([np.full_like(grid, 0.3), grid, np.full_like(grid, -0.2)], axis=1)
        logs = np.array(
            [float(posterior.log_prob(one, [0.3, NAN, -0.2])), _log_integral(posterior, one, whole, grid[1] - grid[0])]
        )
        constant = float(jnp.log(spaces[1].standardiser.scale[1]))  # x is missing, w is integrated over
        assert logs[0] == pytest.approx(logs[1] - constant, abs=0.01)


def _log_integral(posterior, theta, rows, step):
    values = np.asarray(
        jax.vmap(lambda row: posterior.likelihood.log_likelihood(jnp.asarray(theta), row))(
            jax.vmap(posterior.likelihood.prepare)(jnp.asarray(rows, jnp.float32))
        ),
        float,
    )
    return float(posterior.prior.log_prob(theta)) + np.logaddexp.reduce(values) + np.log(step)


def test_models_that_cannot_do_it_say_so(posterior, key):
    likelihood = posterior.likelihood
    energy = MlpEnergy(Mlp(key, 5, 1, width=4, depth=1), None)
    tilted = EnergyLikelihood(
        likelihood.theta_space, likelihood.x_space, EnergyModel(likelihood.model.base, energy), jnp.zeros(())
    )
    ensemble = Ensemble(
        likelihood.theta_space,
        likelihood.x_space,
        jax.tree.map(lambda leaf: leaf[None], likelihood.model),
        jnp.zeros(1),
    )
    remedy = r"; try leaving these coordinates out of x, and fit again: AUNLE\(prior\)"
    for unable, why in (
        (tilted, "the model has an energy, whose integral over entries that are missing is not known"),
        (geometric_mean(ensemble), "entries that are missing cannot be integrated over in a Consensus"),
    ):
        with pytest.raises(InputError, match=f"expected a complete x_o: {why}{remedy}"):
            Posterior(posterior.prior, unable).sample([104.0, NAN, 1.0], 100)
    for nothing in ([NAN, NAN, NAN], [104.0, np.inf, 1.0]):
        with pytest.raises(InputError, match="NaN or inf in coordinates"):
            posterior.sample(nothing, 100)


def test_a_missing_count_is_not_compared_with_the_counts():
    counts = np.random.default_rng(0).poisson([2.0, 6.0], size=(500, 2)).astype(float)
    space = fit_x_space(counts)
    assert list(space.cells.which) == [0, 1]
    assert space.observation_warning(np.array([[2.0, NAN]])) is None
    assert "multiples of 1" in space.observation_warning(np.array([[2.5, NAN]]))


def test_checks_that_need_every_entry_say_so(model, posterior):
    theta = posterior.prior.sample(400, seed=2)
    draws = Draws(np.asarray(theta).reshape(4, 100, 2), posterior.prior.names, np.array([[104.0, NAN, 1.0]]), seed=0)
    x = model.simulate(theta, np.random.default_rng(1))
    run = FittedRun(posterior, draws, theta, x, simulator=lambda theta, rng: model.simulate(theta[None], rng)[0])
    found = run_checks(run, ["outlier", "predictive", "tail_rank", "sampler"])
    assert [check.name for check in found.checks] == ["sampler"]
    assert {one.reason for one in found.missing} == {
        "entries of x_o are missing: leave them out of x, fit again, and check that fit."
    }


def test_what_follows_from_a_missing_entry_is_not_thrown_away(linear_gaussian):
    rng = np.random.default_rng(0)
    prior, likelihood, _ = linear_gaussian.fitted(rng)
    x = linear_gaussian.simulate(linear_gaussian.mean + rng.normal(size=(500, 2)), rng)
    twice = eqx.tree_at(lambda one: one.x_space, likelihood, fit_x_space(np.column_stack([x, 2 * x[:, 0]])))
    with pytest.raises(InputError, match=r"expected x_o\[0\], from which x_o\[2\] follows; got NaN"):
        Posterior(prior, twice).sample([NAN, 35.0, 208.0], 100)
