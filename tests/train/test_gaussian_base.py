"""Gaussian bases: the linear fit against exact regression, shrinkage, and networks that have to earn their place."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from unle.models import FixedMeasure
from unle.train import FixedBase, GaussianTraining, Rows, fit_gaussians, make_splits
from unle.train.closed_form_fits import _Products, linear_fit, shrunk_covariance

SETTINGS = GaussianTraining(width=16, depth=1, iterations=600, batch=128, chunk=50, learning_rate=0.02)
MEMBERS, ROWS = 2, 1000


def test_the_linear_fit_is_least_squares():
    rng = np.random.default_rng(0)
    t = rng.normal(size=(300, 3))
    w = 0.5 + t @ rng.normal(size=(3, 1)) + 0.3 * rng.normal(size=(300, 1))
    intercept, slope, whitener = linear_fit(t, w)
    design = np.column_stack([np.ones(300), t])
    exact, (squares,), *_ = np.linalg.lstsq(design, w, rcond=None)
    np.testing.assert_allclose(np.concatenate([intercept[None], slope]), exact, atol=1e-5)
    np.testing.assert_allclose(1 / whitener**2, [[squares / (300 - 4)]], rtol=1e-4)


def test_with_plenty_of_rows_nothing_is_shrunk():
    rng = np.random.default_rng(1)
    covariance = np.array([[4.0, 1.7], [1.7, 1.0]])  # correlation 0.85, of different sizes
    residual = rng.multivariate_normal(np.zeros(2), covariance, size=20_000)
    np.testing.assert_allclose(shrunk_covariance(residual), residual.T @ residual / len(residual), rtol=1e-3)
    intercept, slope, whitener = linear_fit(rng.normal(size=(20_000, 2)), residual)
    root = np.linalg.inv(whitener)
    np.testing.assert_allclose(root @ root.T, covariance, rtol=0.05)
    np.testing.assert_array_equal(np.triu(whitener, 1), np.zeros((2, 2)))


def held_out(covariance, rows):
    return multivariate_normal.logpdf(rows, np.zeros(rows.shape[1]), covariance).mean()


def test_shrinkage_helps_with_many_coordinates_and_few_rows():
    rng = np.random.default_rng(2)
    k, n = 30, 45
    scales = np.logspace(-2, 2, k)  # in different units
    root = np.diag(scales) @ (np.eye(k) + 0.1 * rng.normal(size=(k, k)))
    residual, fresh = rng.normal(size=(n, k)) @ root.T, rng.normal(size=(2000, k)) @ root.T
    shrunk, raw = shrunk_covariance(residual), residual.T @ residual / n
    np.testing.assert_allclose(np.diagonal(shrunk), np.diagonal(raw), rtol=1e-4)
    assert held_out(shrunk, fresh) > held_out(raw, fresh) + 10  # nats: the raw covariance is nearly singular
    assert held_out(shrunk, fresh) > held_out(root @ root.T, fresh) - 4


def test_shrinkage_does_not_deny_a_correlation_that_is_there():
    rng = np.random.default_rng(3)
    covariance = 0.1 * np.eye(8) + 0.9  # all correlations 0.9
    residual, fresh = (rng.multivariate_normal(np.zeros(8), covariance, size=n) for n in (100, 2000))
    shrunk = shrunk_covariance(residual)
    assert held_out(shrunk, fresh) > held_out(covariance, fresh) - 0.5
    assert held_out(shrunk, fresh) > held_out(np.diag(np.diagonal(shrunk)), fresh) + 2


def test_coordinates_without_residual_do_not_break_the_fit():
    t = np.random.default_rng(4).normal(size=(50, 2))
    parts = linear_fit(t, np.column_stack([t[:, 0], t[:, 1], t[:, 0]]))  # exactly linear, one of them twice
    assert all(np.isfinite(part).all() for part in parts)


def data(mean, sd, seed=0):
    rng = np.random.default_rng(seed)
    t = rng.normal(size=(ROWS, 1))
    w = mean(t) + sd(t) * rng.normal(size=(ROWS, 1))
    return jnp.asarray(t, jnp.float32), jnp.asarray(w, jnp.float32), norm.logpdf(w, mean(t), sd(t))[:, 0]


@pytest.fixture(scope="module")
def splits():
    return make_splits(jr.key(0), ROWS, members=MEMBERS)


def linear_score(t, w, splits):
    scores = []
    for train, rows in zip(np.asarray(splits.train), np.asarray(splits.held_out), strict=True):
        intercept, slope, whitener = linear_fit(np.asarray(t, float)[train], np.asarray(w, float)[train])
        scores.append(norm.logpdf(w[rows], intercept + t[rows] @ slope, 1 / whitener).mean())
    return np.array(scores)


def test_a_linear_gaussian_is_recovered(splits):
    t, w, exact = data(lambda t: 0.3 - 0.8 * t, lambda t: 0.5)
    bases, scores = fit_gaussians(jr.key(1), Rows(t, w, splits), settings=SETTINGS)
    np.testing.assert_allclose(bases.intercept, np.full((MEMBERS, 1), 0.3), atol=4 * 0.5 / np.sqrt(0.9 * ROWS))
    np.testing.assert_allclose(bases.slope, np.full((MEMBERS, 1, 1), -0.8), atol=4 * 0.5 / np.sqrt(0.9 * ROWS))
    np.testing.assert_allclose(1 / bases.whitener, np.full((MEMBERS, 1, 1), 0.5), atol=4 * 0.5 / np.sqrt(1.8 * ROWS))
    held = np.asarray(splits.held_out)
    np.testing.assert_allclose(scores, exact[held].mean(1), atol=0.02)
    assert scores.mean() >= linear_score(t, w, splits).mean() - 1e-4


def test_a_bent_mean_and_an_uneven_noise_are_learnt(splits):
    t, w, exact = data(lambda t: np.tanh(2 * t), lambda t: np.exp(0.7 * t - 1))
    bases, scores = fit_gaussians(jr.key(1), Rows(t, w, splits), settings=SETTINGS)
    linear = linear_score(t, w, splits)
    assert (scores > linear + 0.4).all()
    assert scores.mean() > exact[np.asarray(splits.held_out)].mean() - 0.12
    again = eqx.filter_jit(
        lambda b: jax.vmap(lambda rows, b: jax.vmap(b.log_density)(t[rows], w[rows]))(splits.held_out, b)
    )
    np.testing.assert_allclose(again(bases).mean(1), scores, atol=1e-4)  # the scores are those of what is returned


def test_an_uneven_noise_is_left_to_a_network(splits):
    t, w, _ = data(lambda t: 0.3 - 0.8 * t, lambda t: np.exp(0.7 * t - 1))
    bases, _ = fit_gaussians(jr.key(1), Rows(t, w, splits), settings=SETTINGS)
    expected = SETTINGS.untrained(1, 1, members=MEMBERS)  # what a sampler is compiled for before the fit
    assert jax.tree.map(jnp.shape, expected) == jax.tree.map(jnp.shape, bases)


def test_a_network_that_blows_up_leaves_the_closed_form(splits):
    t, w, _ = data(lambda t: np.sin(2 * t), lambda t: 0.5)
    settings = GaussianTraining(width=8, depth=1, iterations=100, batch=128, chunk=50, learning_rate=1e6)
    bases, scores = fit_gaussians(jr.key(1), Rows(t, w, splits), settings=settings)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(bases))
    idle = GaussianTraining(width=8, depth=1, iterations=50, batch=128, chunk=50, learning_rate=0.0)
    np.testing.assert_allclose(scores, fit_gaussians(jr.key(1), Rows(t, w, splits), settings=idle)[1], atol=5e-3)
    assert (np.asarray(scores) > np.asarray(linear_score(t, w, splits)) + 0.05).all()  # a sine bends


def test_products_of_training_rows_are_those_of_all_rows_less_the_others():
    rng = np.random.default_rng(6)
    t, w = rng.normal(size=(60, 2)), rng.normal(size=(60, 3))
    products = _Products.of(t, w, most_rows=54)
    assert products.degree == 4  # fifteen monomials, three rows for each
    for rows in (rng.permutation(60)[:54], np.arange(5)):
        design = products.design[rows]
        gram, moments = products.of_rows(rows)
        np.testing.assert_allclose(gram, design.T @ design, atol=1e-9)
        np.testing.assert_allclose(moments, design.T @ w[rows], atol=1e-9)


def test_a_fit_to_more_rows_takes_more_steps_and_waits_as_long_a_share_of_them():
    settings = GaussianTraining(iterations=100, batch=128, chunk=10, weight_decay=0.05)
    assert settings.for_rows(300) == settings
    longer = settings.for_rows(10_000)
    assert (longer.iterations, longer.chunk) == (400, 40)


def test_batches_are_smaller_where_rows_are_few_unless_somebody_said_how_large():
    batches = [GaussianTraining().for_rows(rows).batch for rows in (100, 900, 1500, 5000, 20_000)]
    assert batches == [100, 128, 192, 256, 500]
    assert GaussianTraining(batch=64).for_rows(900).batch == 64
    assert GaussianTraining().for_rows(900, in_all=5000).batch == 256  # a window on more


def test_weights_decay_more_where_rows_are_few_unless_somebody_said_how_much():
    decays = [GaussianTraining().for_rows(rows).weight_decay for rows in (100, 900, 1500, 5000)]
    assert decays == pytest.approx([0.1, 0.1, 0.075, 0.05])
    assert GaussianTraining(weight_decay=0.3).for_rows(100).weight_decay == 0.3
    assert GaussianTraining().for_rows(900, in_all=5000).weight_decay == pytest.approx(0.05)  # a window on more


def test_a_fixed_base_is_the_same_for_every_member(splits):
    t, w, _ = data(lambda t: t, lambda t: 0.5)
    bases = FixedBase(scale=7.0).fit(jr.key(0), Rows(t, w, splits))
    assert isinstance(bases, FixedMeasure)
    density = eqx.filter_jit(eqx.filter_vmap(lambda base: base.log_density(t[0], w[0])))(bases)
    np.testing.assert_allclose(density, np.full(MEMBERS, norm.logpdf(w[0], 0, 7.0)), rtol=1e-5)
