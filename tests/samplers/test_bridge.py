"""The bridge's bookkeeping, against sums done by hand. Whether its samples are right: tests/statistical."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from unle.errors import InputError
from unle.samplers import Particles, Path, RandomWalk, SharedStepSize, bridge

POSITIONS = jnp.array([[-1.0], [0.0], [0.5], [2.0]])
WEIGHTS = jnp.array([0.1, 0.2, 0.3, 0.4])
PARTICLES = Particles(POSITIONS, jnp.log(WEIGHTS) + 5.0)  # a constant in the log-weights must not matter


def log_from(x):
    return -0.5 * jnp.sum(x**2)


def log_to(x):
    return jnp.sum(x) - 2.0


RATIO = np.exp(np.asarray(jax.vmap(lambda x: log_to(x) - log_from(x))(POSITIONS)))


@pytest.mark.parametrize("temperatures", [1, 3])
def test_without_moves_it_is_importance_sampling(temperatures):
    particles, info = bridge(
        jr.key(0), PARTICLES, Path(log_from, log_to), moves=0, temperatures=temperatures, ess_threshold=0.0
    )
    expected = np.asarray(WEIGHTS) * RATIO
    np.testing.assert_allclose(info.log_z, np.log(expected.sum()), rtol=1e-5)
    np.testing.assert_allclose(particles.weights, expected / expected.sum(), rtol=1e-5)
    np.testing.assert_array_equal(particles.positions, POSITIONS)
    np.testing.assert_allclose(info.ess, expected.sum() ** 2 / (expected**2).sum() / 4, rtol=1e-5)
    assert info.resampled == 0


def test_resampling_leaves_equal_weights_and_the_same_log_z():
    particles, info = bridge(jr.key(0), PARTICLES, Path(log_from, log_to), moves=0, ess_threshold=1.0)
    np.testing.assert_allclose(particles.weights, 0.25)
    np.testing.assert_allclose(info.log_z, np.log((np.asarray(WEIGHTS) * RATIO).sum()), rtol=1e-5)
    assert info.resampled == 1


def test_a_bridge_to_the_same_density_changes_no_weight():
    particles, info = bridge(jr.key(0), PARTICLES, Path(log_from, log_from), moves=1, kernel=RandomWalk())
    np.testing.assert_allclose(particles.weights, WEIGHTS, rtol=1e-5)
    np.testing.assert_allclose(info.log_z, 0.0, atol=1e-6)


def test_coordinates_that_stay_are_resampled_but_not_moved():
    """From N(0, I) to the tilt exp(a b / 2): Z = (1 - 1/4)^(-1/2), and var a = 4/3, though no kernel moves a."""

    @jax.jit
    def one(key):
        key_start, key_bridge = jr.split(key)
        start = Particles.equal(jr.normal(key_start, (2000, 2)))
        normal, tilt = lambda x: -0.5 * jnp.sum(x**2), lambda x: 0.5 * x[0] * x[1]
        end, info = bridge(key_bridge, start, Path(normal, lambda x: normal(x) + tilt(x), n_fixed=1), temperatures=4)
        kept = jnp.isin(end.positions[:, 0], start.positions[:, 0])
        moved = ~jnp.isin(end.positions[:, 1], start.positions[:, 1])
        return info.log_z, end.weights @ end.positions[:, 0] ** 2, jnp.all(kept), jnp.mean(moved)

    log_z, variance, kept, moved = map(np.array, zip(*map(one, jr.split(jr.key(0), 16)), strict=True))

    def score(values, exact):
        return abs(values.mean() - exact) / (values.std(ddof=1) / 4)

    assert score(np.exp(log_z), 0.75**-0.5) < 4.5
    assert score(variance, 4 / 3) < 4.5
    assert score(variance, 1.0) > 9  # precise enough to tell the start from the end
    assert kept.all()
    assert (moved > 0.9).all()


def test_a_ratio_may_be_given_apart():
    """Common factors cancel in it; the result is the same."""
    plain = bridge(jr.key(0), PARTICLES, Path(log_from, log_to), moves=0)
    given = bridge(jr.key(0), PARTICLES, Path(log_to, log_to, lambda x: log_to(x) - log_from(x)), moves=0)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), plain, given)


def test_particles_outside_the_new_support_die():
    def positive(x):
        return jnp.where(x[0] > 0, log_from(x), -jnp.inf)

    particles, info = bridge(jr.key(0), PARTICLES, Path(log_from, positive), moves=0, ess_threshold=0.0)
    np.testing.assert_allclose(particles.weights, [0, 0, 0.3 / 0.7, 0.4 / 0.7], rtol=1e-5)
    np.testing.assert_allclose(info.log_z, np.log(0.7), rtol=1e-5)
    _, lost = bridge(jr.key(0), PARTICLES, Path(log_from, lambda x: -jnp.inf + 0 * x[0]), moves=0)
    assert lost.log_z == -jnp.inf


def test_the_step_size_is_carried_and_nothing_is_traced_twice(strict_keys):
    @jax.jit
    @eqx.debug.assert_max_traces(max_traces=1)
    def run(key, particles, scale, step_state):
        target = lambda x: log_from(x / scale)  # noqa: E731
        return bridge(key, particles, Path(log_from, target), step_state=step_state, temperatures=2)

    particles = Particles.equal(jr.normal(jr.key(0), (100, 2)))
    _, first = run(jr.key(1), particles, 0.5, SharedStepSize().init(100))
    _, second = run(jr.key(2), particles, 0.4, first.step_state)
    assert second.step_state.crossings >= first.step_state.crossings
    assert second.step_state.log_step != first.step_state.log_step


@pytest.mark.parametrize("wrong", [{"moves": -1}, {"temperatures": 0}, {"ess_threshold": 1.5}])
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        bridge(jr.key(0), PARTICLES, Path(log_from, log_to), **wrong)
