import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from unle.samplers import Particles, ess, fit_whitening, log_mean_exp, systematic_indices

indices_of = jax.jit(jax.vmap(systematic_indices, (0, None)))


def test_weights_and_means_by_hand():
    particles = Particles(jnp.array([[1.0], [2.0], [4.0]]), jnp.log(jnp.array([1.0, 2.0, 1.0])) + 300.0)
    np.testing.assert_allclose(particles.weights, [0.25, 0.5, 0.25], rtol=1e-4)
    np.testing.assert_allclose(particles.mean(particles.positions), [2.25], rtol=1e-4)
    np.testing.assert_allclose(particles.ess, 16 / 6 / 3, rtol=1e-4)


def test_ess_runs_from_one_over_n_to_one():
    one_alive = jnp.full(5, -jnp.inf).at[2].set(-1000.0)
    np.testing.assert_allclose(ess(one_alive), 0.2, rtol=1e-6)
    np.testing.assert_allclose(ess(jnp.full(5, 88.0)), 1.0, rtol=1e-6)
    assert ess(jnp.full(5, -jnp.inf)) == 0


def test_log_mean_exp_does_not_overflow():
    np.testing.assert_allclose(log_mean_exp(jnp.array([1000.0, 1000.0])), 1000.0)
    assert log_mean_exp(jnp.full(2, -jnp.inf)) == -jnp.inf


def test_systematic_counts_are_rounded_expectations():
    n = 9_999
    log_weights = 3.0 * np.random.default_rng(0).normal(size=n).astype(np.float32)
    expected = n * np.exp(log_weights, dtype=float) / np.exp(log_weights, dtype=float).sum()
    indices = np.asarray(indices_of(jr.uniform(jr.key(1), (200,)), jnp.asarray(log_weights)))
    counts = np.stack([np.bincount(row, minlength=n) for row in indices])
    rounding = 1e-5 * n  # of the cumulative sums, in particles
    assert (counts.sum(axis=1) == n).all()
    assert (abs(counts - expected) < 1 + rounding).all()
    assert abs(counts.mean(axis=0) - expected).max() < 5 * 0.5 / np.sqrt(200) + rounding


def test_dead_particles_are_never_chosen():
    """The last sums of float32 weights fall short of one: the comb must not run past the living."""
    log_weights = np.where(np.arange(9_999) % 3 == 0, 0.0, -np.inf).astype(np.float32)
    indices = indices_of(jr.uniform(jr.key(0), (200,)), jnp.asarray(log_weights))
    assert (np.asarray(indices) % 3 == 0).all()


def test_all_dead_means_equal_weights_not_nan():
    particles = Particles(jnp.arange(4.0)[:, None], jnp.full(4, -jnp.inf))
    np.testing.assert_allclose(particles.weights, 0.25)
    np.testing.assert_array_equal(systematic_indices(jnp.array(0.5), particles.log_weights), np.arange(4))


def test_resampling_equally_weighted_particles_keeps_nearly_all():
    ancestors = systematic_indices(jnp.array(0.3), jnp.zeros(1000))
    assert len(np.unique(ancestors)) > 990  # float32 may shift a tooth of the comb by one


@jax.jit
def there_and_back(sample):
    whitening = fit_whitening(sample)
    white = jax.vmap(whitening.whiten)(sample)
    return whitening, white, jax.vmap(whitening.colour)(white)


SAMPLE = np.random.default_rng(0).normal(size=(4000, 2)) @ [[1e-3, 30.0], [0.0, 5.0]] + [5.0, -100.0]


@pytest.mark.parametrize(
    "sample",
    [np.full((4000, 2), 7.0), np.zeros((4000, 2)), np.tile(np.arange(4000.0)[:, None], (1, 2))],
    ids=["one point", "zeros", "a line"],
)
def test_whitening_survives_degenerate_samples(sample):
    whitening, _, _ = there_and_back(jnp.asarray(sample, "float32"))
    assert np.isfinite(whitening.factor).all()
    assert (np.diag(whitening.factor) > 0).all()


def test_whitening_gives_unit_covariance_and_inverts():
    _, white, back = there_and_back(jnp.asarray(SAMPLE, "float32"))
    np.testing.assert_allclose(np.cov(np.asarray(white).T), np.eye(2), atol=0.02)
    np.testing.assert_allclose(back, SAMPLE, rtol=1e-4)


def test_whitening_uses_the_weights():
    whitening = jax.jit(fit_whitening)(jnp.array([[0.0], [1.0], [100.0]]), jnp.array([0.5, 0.5, 0.0]))
    np.testing.assert_allclose(whitening.mean, [0.5], rtol=1e-6)
    np.testing.assert_allclose(whitening.factor, [[0.5]], rtol=1e-4)
