"""Tilted models and the likelihoods of raw data made of them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from unle.models import (
    ConditionalGaussian,
    Consensus,
    EnergyLikelihood,
    EnergyModel,
    Ensemble,
    Mlp,
    MlpEnergy,
    NeuralCorrection,
)
from unle.space import fit_theta_space, fit_x_space

MEMBERS = 3
RNG = np.random.default_rng(0)
THETA_TABLE, X_TABLE = RNG.normal(3.0, 2.0, (400, 1)), RNG.normal([-1.0, 50.0], [0.1, 9.0], (400, 2))
THETA, X = jnp.array([2.0]), jnp.array([-0.9, 48.0])


def stacked_models():
    """Return three models with weights from numpy, stacked."""

    def one(key):
        net = Mlp(key, 1, NeuralCorrection.outputs(2), width=4, depth=1)
        base = ConditionalGaussian(jnp.zeros(2), jnp.ones((1, 2)), jnp.eye(2), NeuralCorrection(net))
        return EnergyModel(base, MlpEnergy.initial(key, 1, 2, width=4, depth=1, bound=5.0))

    shapes = jax.eval_shape(one, jr.key(0))
    rng = np.random.default_rng(1)
    models = jax.tree.map(lambda leaf: jnp.asarray(0.5 * rng.normal(size=(MEMBERS, *leaf.shape)), leaf.dtype), shapes)
    eyes = jnp.asarray(np.stack([np.eye(2)] * MEMBERS), jnp.float32)
    return eqx.tree_at(lambda m: m.base.whitener, models, eyes)


@pytest.fixture(scope="module")
def ensemble():
    spaces = fit_theta_space(THETA_TABLE), fit_x_space(X_TABLE)
    return Ensemble(*spaces, stacked_models(), jnp.array([0.3, -1.2, 2.0]))


@eqx.filter_jit
def log_likelihood(likelihood, theta, x):
    return likelihood.log_likelihood(theta, likelihood.prepare(x))


def test_a_tilted_density_is_base_minus_energy(ensemble):
    tilted = ensemble.member(1).model

    @eqx.filter_jit
    def both_ways(tilted, t, v):
        w = tilted.base.unwhiten(t, v)
        energy = tilted.energy(t, tilted.base.features(t, w))
        given = tilted.log_density(t, w), tilted.log_tilt(t, w), tilted.log_tilt_whitened(t, v)
        return energy, given, (tilted.base.log_density(t, w) - energy, -energy, -energy)

    energy, given, expected = both_ways(tilted, jnp.array([0.3]), jnp.array([0.5, -1.0]))
    assert abs(energy) > 0.01
    np.testing.assert_allclose(given, expected, rtol=1e-4)


def test_a_likelihood_standardises_raw_values(ensemble):
    likelihood = ensemble.member(0)
    assert isinstance(likelihood, EnergyLikelihood)
    t = jnp.asarray((np.asarray(THETA) - THETA_TABLE.mean(0)) / THETA_TABLE.std(0), jnp.float32)
    w = jnp.asarray((np.asarray(X) - X_TABLE.mean(0)) / X_TABLE.std(0), jnp.float32)
    np.testing.assert_allclose(likelihood.prepare(X), w, rtol=1e-4)
    exact = eqx.filter_jit(lambda model: model.log_density(t, w))(likelihood.model) - likelihood.log_z
    np.testing.assert_allclose(log_likelihood(likelihood, THETA, X), exact, rtol=1e-4)


def test_an_ensemble_is_the_mean_density_of_its_members(ensemble):
    alone = np.array([log_likelihood(ensemble.member(k), THETA, X) for k in range(MEMBERS)])
    assert np.ptp(alone) > 0.5
    members = eqx.filter_jit(ensemble.member_log_likelihoods)(THETA, ensemble.prepare(X))
    np.testing.assert_allclose(members, alone, rtol=1e-5)
    np.testing.assert_allclose(log_likelihood(ensemble, THETA, X), np.log(np.mean(np.exp(alone))), rtol=1e-5)
    assert ensemble.size == MEMBERS


def test_a_member_is_the_model_it_was_made_of(ensemble):
    for k in range(MEMBERS):
        member, models = ensemble.member(k), stacked_models()
        jax.tree.map(lambda ours, theirs, k=k: np.testing.assert_array_equal(ours, theirs[k]), member.model, models)
        assert member.log_z == ensemble.log_z[k]


def test_densities_that_underflow_are_still_compared(ensemble):
    w = ensemble.prepare(jnp.array([5.0, 50.0]))  # sixty standard deviations out
    value, slope = eqx.filter_jit(lambda model, w: jax.value_and_grad(model.log_likelihood)(THETA, w))(ensemble, w)
    assert value < -200
    assert np.isfinite(value)
    assert np.isfinite(slope).all()


def test_a_consensus_is_the_geometric_mean_and_never_above_the_mixture(ensemble):
    members = [float(log_likelihood(ensemble.member(k), THETA, X)) for k in range(MEMBERS)]
    consensus = float(log_likelihood(Consensus(ensemble), THETA, X))
    np.testing.assert_allclose(consensus, np.mean(members), rtol=1e-5)
    assert consensus < float(log_likelihood(ensemble, THETA, X)) - 0.1
