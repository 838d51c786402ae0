"""Counts of a few values: probabilities learned as such, against exact posteriors."""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.stats import binom, norm

import unle
from unle.methods.discrete_data import _cells, is_coarse, with_probabilities
from unle.methods.energy_selection import Choice, Selected
from unle.methods.training_pairs import standardised_pairs
from unle.models import EnergyModel, NoEnergy
from unle.train import GaussianTraining, autoregressive_fit, fit_to_cells

DOSE = np.array([-0.86, -0.30, -0.05, 0.40, 0.73, 1.1])
ANIMALS, DEATHS = 8, np.array([0, 1, 3, 6, 7, 8])
PRIOR = unle.Prior({"alpha": dist.Normal(0, 2), "beta": dist.HalfNormal(8)})


def chances(theta):
    """Return the probability of death at every dose."""
    return 1 / (1 + np.exp(-(theta[..., :1] + theta[..., 1:] * DOSE)))


def count_deaths(theta, rng):
    return rng.binomial(ANIMALS, chances(theta))


def exact_posterior():
    """Return means and standard deviations, on a grid."""
    alpha, beta = np.meshgrid(np.linspace(-4, 3, 281), np.linspace(0.01, 16, 320), indexing="ij")
    theta = np.stack([alpha.ravel(), beta.ravel()], axis=1)
    log_p = norm.logpdf(theta[:, 0], 0, 2) + norm.logpdf(theta[:, 1], 0, 8)
    log_p = log_p + binom.logpmf(DEATHS, ANIMALS, chances(theta)).sum(axis=1)
    weights = np.exp(log_p - log_p.max())
    mean = weights @ theta / weights.sum()
    return mean, np.sqrt(weights @ np.square(theta - mean) / weights.sum())


def tables(n, seed):
    rng = np.random.default_rng(seed)
    theta = np.stack([rng.normal(0, 2, n), np.abs(rng.normal(0, 8, n))], axis=1)
    return theta, count_deaths(theta, rng).astype(float)


def bases_alone(pairs):
    """Return Gaussian bases without energies, as if nothing better had been found."""
    bases = GaussianTraining(iterations=150).fit(jr.key(0), pairs.rows)
    choice = Choice(EnergyModel(bases, NoEnergy()), np.zeros(pairs.rows.members, np.float32), 0.0)
    return Selected(choice, None, "none", "")


def test_probabilities_of_counts_replace_a_density_and_are_those_of_the_simulator():
    pairs = standardised_pairs(jr.key(0), tables(1500, 0), PRIOR, members=2)
    before = bases_alone(pairs)
    assert is_coarse(pairs.rows, pairs.x_space)
    kept = with_probabilities(jr.key(1), before, pairs.rows, pairs.x_space)
    assert kept is not before
    assert "the probabilities of discrete values describe held-out data better" in kept.sentence
    assert kept.choice.certificate.reliable
    assert kept.choice.certificate.knows_theta
    theta, x = tables(200, 1)
    model = unle.models.over_cells(kept.choice.ensemble(pairs.theta_space, pairs.x_space))

    @jax.jit
    @jax.vmap
    def log_p(theta, x):  # the mean density over a cell, times its volume
        cell = model.prepare(x)
        return model.log_likelihood(theta, cell) + jnp.sum(jnp.log(cell[2] - cell[0]))

    ours = np.asarray(log_p(*(jnp.asarray(part, jnp.float32) for part in (theta, x))))
    exact = binom.logpmf(x, ANIMALS, chances(theta)).sum(axis=1)
    assert np.abs(exact - ours).mean() < 0.3
    assert abs(np.mean(exact - ours)) < 0.15


def test_rows_that_decide_choose_neither_design_nor_end_of_training(monkeypatch):
    monkeypatch.setattr(autoregressive_fit, "RACE_STEPS", 100)
    monkeypatch.setattr(
        autoregressive_fit, "OF_CELLS", autoregressive_fit.OF_CELLS._replace(steps=300, width=8, depth=1)
    )
    pairs = standardised_pairs(jr.key(0), tables(400, 0), PRIOR, members=1)
    held_out = pairs.rows.splits.held_out[0]
    cells, standardiser = _cells(pairs.x_space, pairs.rows.w), pairs.x_space.standardiser

    def fit(changed):
        others = cells.at[changed].set(jnp.roll(cells[changed], 1, axis=0))  # data of other parameters
        return fit_to_cells(jr.key(1), pairs.rows, others, standardiser)[0]

    kept = fit(held_out[:0])
    assert eqx.tree_equal(fit(held_out[pairs.rows.deciding]), kept)
    assert not eqx.tree_equal(fit(held_out[pairs.rows.stopping]), kept)  # those do


def test_smooth_data_and_large_counts_are_left_alone():
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(400, 2)) * [2, 1] + [0, 3]
    for x in (rng.normal(size=(400, 3)), rng.poisson(10_000.0, size=(400, 3)).astype(float)):
        pairs = standardised_pairs(jr.key(0), (theta, x), unle.Prior.normal([0, 3], [2, 1]), members=2)
        assert not is_coarse(pairs.rows, pairs.x_space)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["aunle", "sunle"])
def test_a_dose_response_has_its_exact_posterior(method):
    mean, sd = exact_posterior()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", unle.UnleWarning)
        if method == "aunle":
            posterior = unle.AUNLE(PRIOR).fit(unle.simulate(count_deaths, PRIOR, 2000, seed=0), seed=1)
        else:
            posterior = unle.SUNLE(PRIOR, count_deaths).run(DEATHS, budget=1000, rounds=3, seed=0).posterior
        draws = np.asarray(posterior.sample(DEATHS, 4000, seed=2))
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=0.25 * sd.min())
    np.testing.assert_allclose(draws.std(axis=0), sd, rtol=0.15)
