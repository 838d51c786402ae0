"""Learned log-normalisers and validity probabilities against exact ones."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from unle.models import AlwaysValid, ValidityNet
from unle.train import (
    LogNormaliserTraining,
    OnlineTraining,
    ValidityTraining,
    estimate_log_z,
    fit_log_normaliser,
    fit_validity,
    online_start,
    online_update,
)
from unle.train.log_normaliser_fit import _n_held_out, _rows_near_typical

TOLERANCE = 0.05  # nats, the largest error over the posterior


@pytest.fixture(scope="module")
def theta(known):
    return known.exact.draws(np.random.default_rng(0), 2000)


def errors(known, b):
    """Return b - log Z at a thousand fresh posterior draws."""
    fresh = jnp.asarray(known.exact.draws(np.random.default_rng(1), 1000), jnp.float32)
    return np.asarray(jax.vmap(lambda one: b(known.likelihood.standardise(one)) - known.log_z(one))(fresh), float)


@pytest.mark.parametrize(("temperatures", "moves"), [(1, 0), pytest.param(4, 1, marks=pytest.mark.slow)])
def test_estimates_of_log_z_and_of_its_gradient(known, theta, temperatures, moves):
    some = jnp.asarray(theta[:40], jnp.float32)
    found = estimate_log_z(jr.key(0), known.likelihood, some, particles=2000, temperatures=temperatures, moves=moves)
    off = np.asarray(found.values - jax.vmap(known.log_z)(some), float)
    assert np.abs(off / np.asarray(found.errors)).max() < 4.5
    assert np.abs(off.mean()) < 0.02
    slopes = jax.vmap(jax.grad(known.log_z))(some)
    np.testing.assert_allclose(found.gradients, slopes, atol=0.25)
    assert np.abs(np.asarray(found.gradients - slopes)).mean() < 0.05


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(LogNormaliserTraining(), id="default"),
        pytest.param(LogNormaliserTraining(values=0.0), id="gradients only", marks=pytest.mark.slow),
    ],
)
def test_log_normaliser_over_the_posterior(known, theta, settings):
    fit = fit_log_normaliser(jr.key(1), known.likelihood, theta, settings=settings)
    off = errors(known, fit.log_normaliser)
    assert np.abs(off - off.mean()).max() < TOLERANCE
    assert abs(off.mean()) < 0.02  # in absolute units, so that members of an ensemble can be compared
    assert off.std() < fit.error_sd + 0.01
    assert fit.temperatures == 1
    # A normaliser of another model is noticed by the same comparison.
    other = errors(known, fit.log_normaliser.in_coordinates(jnp.array([0.1, 0.0]), jnp.ones(2)))
    assert np.abs(other - other.mean()).max() > TOLERANCE


def test_online_training_recycles_particles(known, theta):
    """Exact draws of the model stand for the particles of training, one per theta."""
    settings = OnlineTraining(width=32)
    t = jnp.asarray(theta, jnp.float32)
    precision = 1 + jnp.exp(t[:, 1])

    @jax.jit
    def train(key):
        key_start, key_steps = jr.split(key)

        def step(state, key):
            key_rows, key_noise = jr.split(key)
            rows = jr.randint(key_rows, (256,), 0, len(t))
            v = t[rows, 0] / precision[rows] + jr.normal(key_noise, (256,)) / jnp.sqrt(precision[rows])
            return online_update(state, known.likelihood.model, t[rows], v[:, None], settings=settings), None

        start = online_start(key_start, 2, settings=settings)
        return jax.lax.scan(step, start, jr.split(key_steps, 2000))[0]

    off = errors(known, train(jr.key(2)).average)
    assert off.std() < 0.05
    assert np.quantile(np.abs(off - off.mean()), 0.95) < 0.1


def test_one_diverged_particle_does_not_spoil_online_training(known):
    state = online_start(jr.key(0), 2)
    t, v = jnp.zeros((4, 2)), jnp.array([[0.0], [1.0], [jnp.nan], [2.0]])
    update = jax.jit(lambda v: online_update(state, known.likelihood.model, t, v).log_normaliser)
    assert eqx.tree_equal(update(v), state.log_normaliser)
    assert not eqx.tree_equal(update(jnp.nan_to_num(v)), state.log_normaliser)


def truth(theta):
    """P(valid | theta), about a quarter on average."""
    return 1 / (1 + np.exp(-(1.5 * theta[:, 0] + theta[:, 0] * theta[:, 1] - 1.5)))


@pytest.fixture(scope="module")
def flags():
    rng = np.random.default_rng(3)
    theta = rng.normal(size=(4000, 2))
    return theta, rng.uniform(size=4000) < truth(theta)


@eqx.filter_jit
def probabilities(net, theta):
    return jnp.exp(jax.vmap(net)(theta))


def distance(net):
    """Return the mean |probability - truth| over fresh theta."""
    fresh = np.random.default_rng(4).normal(size=(2000, 2))
    return float(np.mean(np.abs(np.asarray(probabilities(net, jnp.asarray(fresh, jnp.float32))) - truth(fresh))))


SMALL = ValidityTraining(members=4, width=32, depth=2, iterations=1500, patience=5)


def test_validity_is_calibrated_and_reweighted_classes_would_not_be(flags):
    theta, valid = flags
    fit = fit_validity(jr.key(4), theta, valid, settings=SMALL)
    assert isinstance(fit.validity, ValidityNet)
    assert distance(fit.validity) < 0.04
    assert fit.calibration_error < 2 * fit.calibration_noise
    assert fit.rate == valid.mean()
    # Balanced classes: every invalid row counted less, as weights 1 / n_class do.
    few = np.flatnonzero(valid)
    balanced = np.concatenate([few, np.flatnonzero(~valid)[: len(few)]])
    fit = fit_validity(jr.key(4), theta[balanced], valid[balanced], settings=SMALL)
    assert distance(fit.validity) > 0.1


def test_what_failed_simulations_left_behind_helps_to_tell_where_others_fail():
    rng = np.random.default_rng(5)
    theta = rng.normal(size=(5000, 12))
    margin = np.sum(theta[:, 0:6:2] * theta[:, 1:6:2], axis=1)
    valid = margin > 1
    x = np.column_stack([margin, np.where(valid, 1.0, np.nan)])
    few, fresh = slice(800), slice(1000, None)
    settings = ValidityTraining(members=4, width=32, depth=2, iterations=600, patience=6)

    def cross_entropy(x):
        fit = fit_validity(jr.key(7), theta[few], valid[few], x=x, settings=settings)
        p = np.clip(np.asarray(probabilities(fit.validity, jnp.asarray(theta[fresh], jnp.float32))), 1e-6, 1 - 1e-6)
        return -np.mean(np.log(np.where(valid[fresh], p, 1 - p)))

    with_hints = cross_entropy(x[few])
    assert with_hints < cross_entropy(None) - 0.01
    assert with_hints < cross_entropy(rng.normal(size=(800, 2))) - 0.01  # of noise there is nothing to learn


def test_validity_with_few_failures(flags):
    theta, _ = flags
    valid = np.ones(500, bool)
    assert isinstance(fit_validity(jr.key(5), theta[:500], valid).validity, AlwaysValid)
    valid[[3, 77, 200]] = False  # at random: nothing to learn beyond the rate
    fit = fit_validity(jr.key(5), theta[:500], valid, settings=SMALL)
    values = np.asarray(probabilities(fit.validity, jnp.asarray(theta[500:1500], jnp.float32)))
    assert 0.97 < values.mean() < 1
    assert values.min() > 0.8


def test_parameters_where_log_z_falls_off_do_not_spoil_the_fit():
    values = np.random.default_rng(0).normal(size=90)
    values[[1, 50]], values[7] = -5000.0, np.nan
    rows = _rows_near_typical(values)
    assert len(rows) == 90  # one shape, one compiled program
    assert not {1, 7, 50} & set(rows)
    held = rows[: _n_held_out(90)]
    assert not set(held) & set(rows[len(held) :])  # no row is both held out and trained on
    hopeless = np.where(np.arange(90) % 9 == 0, 0.0, -5000.0 * np.arange(90))
    np.testing.assert_array_equal(_rows_near_typical(hopeless), np.arange(90))
