"""Doubly intractable likelihoods, their normalisers, mixtures and validity: exact identities."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from unle.errors import InputError
from unle.models import (
    AlwaysValid,
    ConditionalGaussian,
    ConditionalLikelihood,
    DoublyIntractableLikelihood,
    EnergyModel,
    LogNormaliser,
    Mlp,
    MlpEnergy,
    NeuralCorrection,
    Normalised,
    TractableLikelihood,
    ValidityNet,
    geometric_pool,
    mixture,
    with_validity,
)
from unle.space import fit_theta_space, fit_x_space
from unle.store.model_files import load_module, save_module

RNG = np.random.default_rng(0)
THETA_TABLE, X_TABLE = RNG.normal(3.0, 2.0, (400, 1)), RNG.normal([-1.0, 50.0], [0.1, 9.0], (400, 2))
THETA, X = jnp.array([2.0]), jnp.array([-0.9, 48.0])


@eqx.filter_jit
def value(function, *arguments):
    """Return what a method returns, from one program instead of one for each of its operations."""
    return function(*arguments)


@eqx.filter_jit
def coordinates(likelihood, theta, w):
    """Return v, w again, and the density of w by way of v: reference, tilt and Jacobian."""
    t = likelihood.standardise(theta)
    v = likelihood.whiten(t, w)
    log_det = jnp.linalg.slogdet(jax.jacobian(lambda w: likelihood.whiten(t, w))(w))[1]
    return v, likelihood.unwhiten(t, v), likelihood.log_reference(v) + likelihood.log_tilt(t, v) + log_det


def filled(tree, seed):
    """Return the tree with arrays from numpy: quicker than compiling generators."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: jnp.asarray(0.5 * rng.normal(size=leaf.shape), jnp.float32), tree)


def conditional(seed):
    def make(key):
        net = Mlp(key, 1, NeuralCorrection.outputs(2), width=4, depth=1)
        base = ConditionalGaussian(jnp.zeros(2), jnp.ones((1, 2)), jnp.eye(2), NeuralCorrection(net))
        return EnergyModel(base, MlpEnergy.initial(key, 1, 2, width=4, depth=1, bound=5.0))

    model = filled(jax.eval_shape(make, jr.key(0)), seed)
    model = eqx.tree_at(lambda m: m.base.whitener, model, jnp.array([[1.5, 0.0], [0.2, 0.8]]))
    return ConditionalLikelihood(fit_theta_space(THETA_TABLE), fit_x_space(X_TABLE), model)


def normaliser(seed):
    b = filled(jax.eval_shape(lambda key: LogNormaliser.initial(key, 1, width=4, depth=1), jr.key(0)), seed)
    return eqx.tree_at(lambda b: b.whitener, b, jnp.array([[2.0]]))


def validity(seed):
    nets = filled(jax.eval_shape(lambda key: Mlp(key, 1, 1, width=4, depth=1), jr.key(0)), seed)
    nets = jax.tree.map(lambda leaf: jnp.stack([leaf, -leaf, 2 * leaf]), nets)
    return ValidityNet(fit_theta_space(THETA_TABLE), nets, jnp.asarray(1.2), jnp.asarray(-0.3))


@pytest.fixture(scope="module")
def likelihood():
    return conditional(1)


def test_the_density_is_that_of_base_and_tilt_in_either_coordinates(likelihood):
    w = value(likelihood.prepare, X)
    _, back, in_v = coordinates(likelihood, THETA, w)  # the Jacobian of v(w) turns the one density into the other
    np.testing.assert_allclose(back, w, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(value(likelihood.log_unnormalised, THETA, w), in_v, rtol=1e-4)


def test_the_kinds_are_classes(likelihood):
    assert isinstance(likelihood, DoublyIntractableLikelihood)
    assert not isinstance(likelihood, TractableLikelihood)
    assert isinstance(Normalised(likelihood, normaliser(2)), TractableLikelihood)
    assert isinstance(with_validity(likelihood, validity(3)), DoublyIntractableLikelihood)
    assert isinstance(with_validity(Normalised(likelihood, normaliser(2)), validity(3)), TractableLikelihood)
    assert with_validity(likelihood, AlwaysValid()) is likelihood


def test_normalised_takes_b_off(likelihood):
    b, w = normaliser(2), value(likelihood.prepare, X)
    wrapped = Normalised(likelihood, b)
    expected = value(likelihood.log_unnormalised, THETA, w) - value(b, value(likelihood.standardise, THETA))
    np.testing.assert_allclose(value(wrapped.log_likelihood, THETA, w), expected, rtol=1e-6)
    np.testing.assert_allclose(value(wrapped.prepare, X), w)
    assert wrapped.space_of_x() is likelihood.space_of_x()


def test_a_normaliser_in_other_coordinates_is_the_same_function():
    b, shift, scale = normaliser(4), jnp.array([0.7]), jnp.array([3.0])
    new = jnp.array([0.4])
    at = value(b, shift + scale * new)
    np.testing.assert_allclose(value(value(b.in_coordinates, shift, scale), new), at, rtol=1e-5)
    np.testing.assert_allclose(value(value(b.shifted, 1.5), new), value(b, new) + 1.5, rtol=1e-5)
    assert float(value(lambda key: LogNormaliser.initial(key, 1, width=4, depth=1), jr.key(0))(new)) == 0


def test_a_mixture_averages_densities(likelihood):
    members = [Normalised(conditional(seed), normaliser(seed)) for seed in (1, 5)]
    mixed, w = mixture(members), value(likelihood.prepare, X)
    values = [float(value(member.log_likelihood, THETA, w)) for member in members]
    np.testing.assert_allclose(value(mixed.log_likelihood, THETA, w), np.logaddexp(*values) - np.log(2), rtol=1e-5)
    np.testing.assert_allclose(value(mixed.member_log_likelihoods, THETA, w), values, rtol=1e-5)
    np.testing.assert_allclose(value(mixed.prepare, X), w)
    assert mixed.size == 2
    assert mixed.space_of_x().dim_x == 2
    assert mixture(members[:1]) is members[0]
    with pytest.raises(InputError, match="at least one member"):
        mixture([])
    with pytest.raises(InputError, match="one class"):
        mixture([members[0], with_validity(members[0], validity(3))])


def test_a_pool_averages_log_densities_and_not_its_members_normalisers(likelihood):
    members = [conditional(seed) for seed in (1, 5, 6)]
    pool, w, t = geometric_pool(members), value(likelihood.prepare, X), value(likelihood.standardise, THETA)
    values = [float(value(member.log_unnormalised, THETA, w)) for member in members]
    np.testing.assert_allclose(value(pool.log_unnormalised, THETA, w), np.mean(values), rtol=1e-5)
    # Z belongs to the pool: tilt and reference are its density at v, in the coordinates of the first base.
    v, back, in_v = coordinates(pool, THETA, w)
    np.testing.assert_allclose(back, w, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.mean(values), in_v, rtol=1e-4)
    assert pool.space_of_x().dim_x == 2
    assert geometric_pool(members[:1]) is members[0]
    same = geometric_pool([members[0], members[0]])
    tilts = [value(model.log_tilt, t, v) for model in (same, members[0])]
    np.testing.assert_allclose(*tilts, rtol=1e-4, atol=1e-4)
    weighted = geometric_pool(members, [3.0, 0.0, 1.0])
    expected = 0.75 * values[0] + 0.25 * values[2]
    np.testing.assert_allclose(value(weighted.log_unnormalised, THETA, w), expected, rtol=1e-5)
    with pytest.raises(InputError, match="at least one member"):
        geometric_pool([])
    with pytest.raises(InputError, match="not all zero"):
        geometric_pool(members, [0.0, 0.0, 0.0])


def test_validity_enters_both_kinds(likelihood):
    net, w = validity(3), value(likelihood.prepare, X)
    t = value(likelihood.standardise, THETA)
    outputs = [float(value(jax.tree.map(lambda leaf, k=k: leaf[k], net.nets), t)[0]) for k in range(3)]
    each = 1 / (1 + np.exp(-np.array(outputs)))
    probability = np.exp(np.mean(np.log(each)))
    logit = np.log(probability / (1 - probability))
    np.testing.assert_allclose(value(net.logit, THETA), logit, rtol=1e-4)
    np.testing.assert_allclose(value(net, THETA), np.log(1 / (1 + np.exp(0.3 - 1.2 * logit))), rtol=1e-4)

    doubly = with_validity(likelihood, net)
    expected = value(likelihood.log_unnormalised, THETA, w) + value(net, THETA)
    np.testing.assert_allclose(value(doubly.log_unnormalised, THETA, w), expected, rtol=1e-5)
    v = value(doubly.whiten, t, w)
    np.testing.assert_allclose(value(doubly.log_tilt, t, v), value(likelihood.log_tilt, t, v))  # Z is what it was
    np.testing.assert_allclose(value(doubly.unwhiten, t, v), w, rtol=1e-4)
    b = normaliser(2)
    plain, inside = with_validity(Normalised(likelihood, b), net), Normalised(doubly, b)
    assert eqx.tree_equal(plain, inside)  # so that exchange finds the unnormalised model


def test_what_was_saved_comes_back(likelihood, tmp_path):
    saved = Normalised(with_validity(likelihood, validity(3)), normaliser(2))
    save_module(tmp_path / "likelihood", saved)
    assert eqx.tree_equal(load_module(tmp_path / "likelihood"), saved)
    pooled = with_validity(Normalised(geometric_pool([likelihood, conditional(5)]), normaliser(2)), validity(3))
    save_module(tmp_path / "pooled", pooled)
    assert eqx.tree_equal(load_module(tmp_path / "pooled"), pooled)
