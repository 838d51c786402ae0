"""Noise that is not Gaussian: found where it is, left out where it is not, and normalised."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

from unle.models import ConditionalGaussian, MixtureNoise, NoCorrection, NoisyBase, Repeated
from unle.train import Rows, Splits
from unle.train.residuals import best_noise, fit_noise

N = 800
NOISES = {
    "t3": stats.t(3),
    "laplace": stats.laplace(),
    "cauchy": stats.cauchy(),
    "two values": None,
}


def draws(name, n, seed):
    rng = np.random.default_rng(seed)
    if name == "two values":
        return rng.choice([-1.0, 1.0], (n, 2)) + 0.15 * rng.normal(size=(n, 2))
    return NOISES[name].rvs((n, 2), random_state=rng)


@pytest.mark.parametrize("name", NOISES)
def test_a_mixture_is_nearly_as_good_as_the_truth(name):
    """On fresh draws it may lose what so many parameters cost: 24 a coordinate, half a nat each over N rows, twice."""
    noise, gain = best_noise(draws(name, N, 0))
    fresh = draws(name, 4000, 1)
    ours = np.asarray(jax.vmap(noise.log_density)(jnp.asarray(fresh)), float)
    if name == "two values":
        exact = np.log(0.5 * sum(stats.norm.pdf(fresh, m, 0.15) for m in (-1, 1))).sum(axis=1)
    else:
        exact = NOISES[name].logpdf(fresh).sum(axis=1)
    lost = exact - ours
    error = lost.std() / np.sqrt(len(lost))
    assert lost.mean() < 2 * 2 * 24 / 2 / N + 4 * error
    assert gain.shape == (N,)
    assert gain.mean() > 0.1


def test_gaussian_residuals_stay_gaussian():
    """A test at the level of one in a thousand a coordinate, and a gain that is worth it: forty samples, none taken."""
    rng = np.random.default_rng(0)
    assert all(best_noise(rng.normal(size=(400, 3))) is None for _ in range(40))


def test_few_residuals_are_left_alone():
    assert best_noise(draws("cauchy", 50, 0)) is None


def test_the_density_is_that_of_the_draws():
    """Kolmogorov's distance of 20,000 draws from the mixture's distribution function, at level 1e-4."""
    noise = MixtureNoise(
        jnp.log(jnp.array([[0.3, 0.7], [0.5, 0.5]])),
        jnp.array([[-2.0, 1.0], [0.0, 0.0]]),
        jnp.array([[0.5, 1.0], [0.2, 5.0]]),
    )
    values = np.asarray(noise.draws(jr.key(0), 20_000), float)
    for j in range(2):
        a, m, s = (np.asarray(part[j], float) for part in (jnp.exp(noise.log_weights), noise.means, noise.scales))

        def cdf(x, a=a, m=m, s=s):
            return (a * stats.norm.cdf((x[:, None] - m) / s)).sum(axis=1)

        assert stats.kstest(values[:, j], cdf).pvalue > 1e-4
    axis = np.linspace(-60, 60, 1501)
    grid = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    total = np.exp(np.asarray(jax.vmap(noise.log_density)(jnp.asarray(grid, jnp.float32)), float)).sum()
    assert total * (axis[1] - axis[0]) ** 2 == pytest.approx(1, abs=1e-3)


def gaussian(dim):
    one = ConditionalGaussian(jnp.zeros(dim), jnp.zeros((1, dim)), jnp.eye(dim), NoCorrection())
    return jax.tree.map(lambda leaf: jnp.stack([leaf] * 2), one)


def test_members_share_one_noise_of_all_their_residuals():
    w = jnp.asarray(draws("t3", 2 * N, 2), jnp.float32)
    t = jnp.zeros((2 * N, 1))
    rows = jnp.arange(2 * N).reshape(2, N)
    noisy = fit_noise(gaussian(2), Rows(t, w, Splits(rows, rows)))
    assert isinstance(noisy.bases, NoisyBase)
    np.testing.assert_array_equal(noisy.bases.noise.scales[0], noisy.bases.noise.scales[1])
    assert noisy.gain.shape == (2, N)


def test_repeated_measurements_share_it_too():
    w = jnp.asarray(draws("laplace", 2 * N, 3).reshape(N, 4), jnp.float32)
    rows = jnp.arange(N).reshape(2, -1)
    noisy = fit_noise(Repeated(gaussian(2), ((0, 1), (2, 3))), Rows(jnp.zeros((N, 1)), w, Splits(rows, rows)))
    assert isinstance(noisy.bases, Repeated)
    assert noisy.bases.one.noise.scales.shape[1] == 2
    assert noisy.gain.shape == (2, N // 2)


def test_an_energy_sees_residuals_with_their_tails_drawn_in():
    base = NoisyBase(jax.tree.map(lambda leaf: leaf[0], gaussian(1)), best_noise(draws("cauchy", N, 0)[:, :1])[0])
    seen = [float(base.features(jnp.zeros(1), jnp.array([w]))[0]) for w in (0.5, 1e4)]
    assert seen[0] == pytest.approx(0.5, rel=0.01)
    assert seen[1] < 30
