"""Gaussian processes in low rank: against the exact formulas, and where they should and should not be chosen."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.stats import norm

from unle.models import Chained, GaussianProcess
from unle.train import GaussianTraining, Rows, fit_gaussians, make_splits
from unle.train.closed_form_fits import _kernel, _length_scales, _Regression, _squared_exponential, fit_processes

SCALES = np.array([0.7, 1.5])


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    t = rng.uniform(-2, 2, size=(80, 2))
    y = np.column_stack([np.sin(3 * t[:, 0]) + 0.2 * t[:, 1] ** 2, t[:, 0] * t[:, 1]])
    return t, y + 0.1 * rng.normal(size=y.shape)


def exact(t, y, fresh, ratio, noise):
    """Return mean and variance of one direction by the textbook formulas."""
    k = lambda a, b: ratio * noise * _squared_exponential(a / SCALES, b / SCALES)  # noqa: E731
    gram = k(t, t) + noise * np.eye(len(t))
    gain = np.linalg.solve(gram, k(t, fresh)).T
    return gain @ y, ratio * noise + noise - np.sum(gain * k(fresh, t), axis=1)


def test_features_at_all_rows_give_the_exact_process(problem):
    t, y = problem
    kernel = _kernel(SCALES, t)
    regression = _Regression(kernel.features(t))
    fit = regression.solve(y)
    fresh = np.random.default_rng(1).uniform(-2, 2, size=(20, 2))
    psi = kernel.features(fresh) @ regression.rotation
    unknown = np.maximum(1 - (psi**2).sum(axis=1), 0)[:, None] + psi**2 @ fit.remaining
    for j in range(2):
        mean, variance = exact(t, y[:, j], fresh, fit.ratio[j], fit.noise[j])
        np.testing.assert_allclose(psi @ fit.weights[:, j], mean, atol=2e-3)
        np.testing.assert_allclose(fit.noise[j] * (1 + fit.ratio[j] * unknown[:, j]), variance, rtol=0.02)


def test_leaving_one_out_is_what_it_says(problem):
    t, y = problem
    fit = _Regression(_kernel(SCALES, t).features(t)).solve(y)
    for row in (0, 17, 63):
        rest = np.delete(np.arange(len(t)), row)
        for j in range(2):
            mean, variance = exact(t[rest], y[rest, j], t[[row]], fit.ratio[j], fit.noise[j])
            np.testing.assert_allclose(fit.left_out[row, j], y[row, j] - mean[0], atol=0.01)
            np.testing.assert_allclose(fit.left_out_sd[row, j] ** 2, variance[0], rtol=0.05)


def test_length_scales_are_found_and_noise_has_no_evidence():
    rng = np.random.default_rng(2)
    t = rng.uniform(-2, 2, size=(200, 2))
    root = np.linalg.cholesky(_squared_exponential(t / SCALES, t / SCALES) + 1e-8 * np.eye(200))
    y = root @ rng.normal(size=(200, 6)) + 0.05 * rng.normal(size=(200, 6))
    scales, evidence = _length_scales(t, y, steps=30)
    np.testing.assert_allclose(scales, SCALES, rtol=0.2)
    assert evidence > 1000
    assert _length_scales(t, rng.normal(size=(200, 6)), steps=30)[1] < 8


WIGGLES = 12.0
SETTINGS = GaussianTraining(width=16, depth=1, iterations=300, batch=128, chunk=50, learning_rate=0.02)


def wiggles(shuffled: bool):
    rng = np.random.default_rng(3)
    t = rng.uniform(-1.7, 1.7, size=(600, 1))
    phases = np.linspace(0, 3, 5)
    mean = np.sin(WIGGLES / 3 * t + phases)
    w = mean + 0.2 * rng.normal(size=mean.shape)
    exact = norm.logpdf(w, mean, 0.2).sum(axis=1)
    t = rng.permutation(t) if shuffled else t
    return jnp.asarray(t, jnp.float32), jnp.asarray(w, jnp.float32), exact


def test_a_mean_that_wiggles_is_left_to_a_process():
    t, w, exact = wiggles(shuffled=False)
    splits = make_splits(jr.key(0), len(t), members=2)
    bases, scores = fit_gaussians(jr.key(1), Rows(t, w, splits), settings=SETTINGS)
    assert isinstance(bases.correction, GaussianProcess | Chained)
    held = np.asarray(splits.held_out)
    assert scores.mean() > exact[held].mean() - 0.3  # nats, of which a line loses more than 5
    again = jax.vmap(lambda b, rows: jax.vmap(b.log_density)(t[rows], w[rows]))(bases, splits.held_out)
    np.testing.assert_allclose(again.mean(axis=1), scores, atol=1e-3)


def test_no_process_is_seen_in_shuffled_rows():
    t, w, _ = wiggles(shuffled=True)
    splits = make_splits(jr.key(0), len(t), members=2)
    r = np.stack([(np.asarray(w, float) - np.mean(w, axis=0)) / np.std(w, axis=0)] * 2)
    assert fit_processes(np.asarray(t, float), r, splits) is None


def test_features_of_growing_data_have_one_shape():
    t, w, _ = wiggles(shuffled=False)
    shapes = []
    for n in (300, 600):
        splits = make_splits(jr.key(0), n, members=2)
        r = np.stack([np.asarray(w, float)[:n]] * 2)
        filled = fit_processes(np.asarray(t, float)[:n], r, splits, one_shape=True)
        plain = fit_processes(np.asarray(t, float)[:n], r, splits)
        np.testing.assert_allclose(filled.scores, plain.scores, atol=1e-6)
        shapes.append([leaf.shape for leaf in jax.tree.leaves(filled.correction)])
    assert shapes[0] == shapes[1]
