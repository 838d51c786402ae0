"""Autoregressive bases are fitted to long data, and kept where they are better."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from unle.models import Autoregressive
from unle.space import fit_x_space
from unle.store.model_files import load_module, save_module
from unle.train import GaussianTraining, Rows, autoregressive_or, base_scores, make_splits
from unle.train import autoregressive_fit as fit_module

POINTS, ROWS, MEMBERS = 12, 1500, 2
LOG_2PI = np.log(2 * np.pi)


def recursion(n, seed):
    """Draw x_s = phi x_(s-1) + e^a N from its stationary start; theta is (phi, a), uniform."""
    rng = np.random.default_rng(seed)
    theta = rng.uniform([-0.9, -1.0], [0.9, 1.0], size=(n, 2))
    phi, sd = theta[:, 0], np.exp(theta[:, 1])
    x = np.empty((n, POINTS))
    x[:, 0] = sd * rng.normal(size=n) / np.sqrt(1 - phi**2)
    for s in range(1, POINTS):
        x[:, s] = phi * x[:, s - 1] + sd * rng.normal(size=n)
    return theta, x


def log_recursion(theta, x):
    phi, sd = theta[:, :1], np.exp(theta[:, 1:])
    scale = np.concatenate([sd / np.sqrt(1 - phi**2), np.repeat(sd, POINTS - 1, axis=1)], axis=1)
    steps = np.concatenate([x[:, :1], x[:, 1:] - phi * x[:, :-1]], axis=1)
    return np.sum(-0.5 * (steps / scale) ** 2 - np.log(scale) - 0.5 * LOG_2PI, axis=1)


@eqx.filter_jit
def log_dets(space, x):
    return jax.vmap(space.log_det)(x)


def standardised(theta, x, *, seed=0):
    """Return t, w, splits, the standardiser, and log |dw/dx| of every row."""
    space = fit_x_space(x)
    t = jnp.asarray((theta - theta.mean(axis=0)) / theta.std(axis=0), jnp.float32)
    w = jnp.asarray(space.forward_table(x), jnp.float32)
    log_det = np.asarray(log_dets(space, jnp.asarray(x, jnp.float32)), float)
    return t, w, make_splits(jr.key(seed), len(x), members=MEMBERS), space.standardiser, log_det


def train(t, w, splits, standardiser, *, steps=600, sees_past=False):
    designs = fit_module._designs(w, standardiser)
    design = next(design for design in designs[::-1] if design.sees_past == sees_past)
    return fit_module._train(np.random.default_rng(0), Rows(t, w, splits), design, fit_module.OF_POINTS, steps=steps)


@pytest.fixture(scope="module")
def series():
    theta, x = recursion(ROWS, seed=0)
    t, w, splits, standardiser, log_det = standardised(theta, x)
    exact = (log_recursion(theta, x) - log_det)[np.asarray(splits.held_out)]
    return t, w, splits, standardiser, exact


@pytest.fixture(scope="module")
def fitted(series):
    return train(*series[:4])


def test_a_recursion_is_learned_nearly_exactly(series, fitted):
    scores, exact = fitted[1], series[-1]
    assert 0.0 < np.mean(exact - scores) < 0.25  # nats of twelve numbers


def test_the_order_of_time_matters(series, fitted):
    t, w, splits, _, exact = series
    shuffled = w[:, np.random.default_rng(0).permutation(POINTS)]  # the same densities, another order
    _, scores = train(t, shuffled, splits, series[3])
    assert np.mean(exact - scores) > np.mean(exact - fitted[1]) + 0.5


def test_scores_are_those_of_the_bases_and_members_can_be_saved(series, fitted, tmp_path):
    t, w, splits, *_ = series
    bases, scores = fitted
    np.testing.assert_allclose(base_scores(bases, t, w, splits), scores, atol=2e-3)
    save_module(tmp_path / "base", bases)
    assert eqx.tree_equal(load_module(tmp_path / "base"), bases)


def test_draws_of_the_base_are_recursions(fitted, series):
    t, w, *_ = series
    base = jax.tree.map(lambda leaf: leaf[0], fitted[0])
    v = base.draws_whitened(jr.key(1), 1000)
    at = t[:1000]
    draws = np.asarray(eqx.filter_jit(eqx.filter_vmap(base.unwhiten))(at, v), float)
    for moment in (lambda y: y[:, 1:] * y[:, :-1], np.square):
        ours, theirs = (moment(np.asarray(y, float)).mean(axis=1) for y in (draws, w[:1000]))
        # the same parameters: the difference has the noise of both
        assert abs(np.mean(ours - theirs)) < 4 * np.std(ours - theirs) / np.sqrt(1000)


def test_transforms_are_undone(series):
    theta, x = recursion(ROWS, seed=1)
    x = x * np.exp(2 * np.random.default_rng(0).normal(size=(1, 1))) * np.exp(3 * theta[:, 1:])  # decades of scales
    t, w, splits, standardiser, _ = standardised(theta, x)
    assert set(standardiser.marginals.names()) == {"asinh"}
    designs = fit_module._designs(w, standardiser)
    assert [design.standardiser is None for design in designs] == [True, True, False, False]
    bases, scores = fit_module._train(
        np.random.default_rng(0), Rows(t, w, splits), designs[2], fit_module.OF_POINTS, steps=100
    )
    assert bases.standardiser is not None
    np.testing.assert_allclose(base_scores(bases, t, w, splits), scores, atol=2e-2)


def test_kept_where_better_and_not_where_the_gaussian_is_right(series, monkeypatch):
    monkeypatch.setattr(fit_module, "RACE_STEPS", 100)
    monkeypatch.setattr(fit_module, "OF_POINTS", fit_module.OF_POINTS._replace(steps=300))
    t, w, splits, standardiser, _ = series
    quick = GaussianTraining(iterations=100, depth=2)
    gaussians = quick.fit(jr.key(0), Rows(t, w, splits))
    kept = autoregressive_or(gaussians, jr.key(1), Rows(t, w, splits), standardiser=standardiser)
    assert isinstance(kept, Autoregressive)
    rng = np.random.default_rng(5)
    linear = np.asarray(t, float) @ rng.normal(size=(2, POINTS)) + rng.normal(size=(ROWS, POINTS))
    t, w, splits, standardiser, _ = standardised(np.asarray(t, float), linear)
    gaussians = quick.fit(jr.key(0), Rows(t, w, splits))
    assert autoregressive_or(gaussians, jr.key(1), Rows(t, w, splits), standardiser=standardiser) is gaussians


def test_short_data_are_left_alone(series, monkeypatch):
    monkeypatch.setattr(fit_module, "_train", None)  # would fail
    t, w, splits, standardiser, _ = series
    bases = object.__new__(Autoregressive)
    short = fit_module.SHORTEST_SERIES - 1
    rows = Rows(t, w[:, :short], splits)
    assert autoregressive_or(bases, jr.key(0), rows, standardiser=standardiser) is bases


def test_short_data_are_tried_where_that_is_asked_for(monkeypatch):
    monkeypatch.setattr(fit_module, "OF_POINTS", fit_module.OF_POINTS._replace(steps=600))
    rng = np.random.default_rng(7)
    theta = rng.uniform(-1, 1, size=(ROWS, 2))  # as many as in the other short data: the programs are the same
    signs = rng.choice([-1.0, 1.0], size=ROWS)  # both readings have the same one: no marginal density tells that
    x = signs[:, None] * (2 + theta[:, :1]) + 0.2 * rng.normal(size=(ROWS, 2))
    t, w, splits, standardiser, _ = standardised(theta, x)
    rows = Rows(t, w, splits)
    gaussians = GaussianTraining(iterations=100, depth=2).fit(jr.key(0), rows)
    kept = autoregressive_or(gaussians, jr.key(1), rows, standardiser=standardiser, shortest=1)
    assert isinstance(kept, Autoregressive)
    gain = np.asarray(base_scores(kept, *rows.table)) - np.asarray(base_scores(gaussians, *rows.table))
    assert gain.mean() > 0.5
    # Companion: far behind energies that gained more, they are given up after the race.
    monkeypatch.setattr(fit_module, "is_better", None)  # would fail
    gains = np.full((len(splits.held_out), rows.n_held_out), 3.0)[:, rows.deciding]
    behind = autoregressive_or(gaussians, jr.key(1), rows, standardiser=standardiser, shortest=1, gains=gains)
    assert behind is gaussians


def uniform_noise():
    rng = np.random.default_rng(3)
    theta = rng.uniform(-3, 3, size=(ROWS, 2))
    return theta, theta + rng.uniform(-1, 1, size=(ROWS, 2))


def test_noise_that_ends_sharply_gets_components_that_do(monkeypatch):
    monkeypatch.setattr(fit_module, "RACE_STEPS", 200)
    monkeypatch.setattr(fit_module, "OF_POINTS", fit_module.OF_POINTS._replace(steps=200))
    monkeypatch.setattr(fit_module, "OF_ENDS", fit_module.OF_ENDS._replace(steps=600))
    theta, x = uniform_noise()
    t, w, splits, standardiser, log_det = standardised(theta, x)
    rows = Rows(t, w, splits)
    gaussians = GaussianTraining(iterations=100, depth=2).fit(jr.key(0), rows)
    kept = autoregressive_or(gaussians, jr.key(1), rows, standardiser=standardiser, shortest=1)
    assert isinstance(kept, Autoregressive)
    assert kept.has_ends
    assert not kept.gives_cells()
    held_out = np.asarray(splits.held_out)
    scores = np.asarray(base_scores(kept, *rows.table), float) + log_det[held_out]
    assert -2 * np.log(2) - 0.12 < scores.mean() < -2 * np.log(2) + 0.01  # exact: the noise has density 1 / 4
    # Energies that gain more than that are left their bases; those that gain less are not.
    gained = scores - np.asarray(base_scores(gaussians, *rows.table), float) - log_det[held_out]
    for more, is_kept in ((0.3, False), (-0.3, True)):
        gains = gained[:, rows.deciding] + more
        chosen = autoregressive_or(gaussians, jr.key(1), rows, standardiser=standardiser, shortest=1, gains=gains)
        assert isinstance(chosen, Autoregressive) == is_kept
