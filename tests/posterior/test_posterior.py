"""The posterior of a linear Gaussian in raw units: densities, modes, shapes, errors, files and trace counts."""

import dataclasses
import warnings

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float
from scipy.stats import multivariate_normal, norm

from unle.errors import InputError, StoreError, UnleWarning
from unle.models import EnergyLikelihood, TractableLikelihood
from unle.posterior import Chains, Posterior, TemperedSmc
from unle.posterior.posterior import _is_sampled
from unle.samplers import RandomWalk, Sweep
from unle.space import Prior
from unle.store.model_files import save_module

N = 1000
OBSERVED = np.array([104.0, 35.0])
THETA = np.array([[0.4, -0.1], [1.5, -0.5], [2.0, 0.3]])
TRACES = []


class Counted(TractableLikelihood):
    """A likelihood that notes each time it is traced."""

    inside: EnergyLikelihood
    offset: Float[Array, ""]

    def space_of_x(self):
        return self.inside.x_space

    def prepare(self, x):
        return self.inside.prepare(x)

    def log_likelihood(self, theta, w):
        TRACES.append("traced")
        return self.inside.log_likelihood(theta, w) + self.offset


@pytest.fixture(scope="module")
def fitted(linear_gaussian):
    return linear_gaussian.fitted(np.random.default_rng(0))


@pytest.fixture(scope="module")
def posterior(fitted):
    prior, likelihood, _ = fitted
    quick = TemperedSmc(islands=2, particles=N, sweep=Sweep(walks=4, langevin=2), settle=1)
    return Posterior(prior, Counted(likelihood, jnp.zeros(())), quick)


def exact_log_prob(model, x_sd, theta, rows):
    """Log prior plus log-likelihood of w = x / x_sd."""
    prior = norm.logpdf(theta, model.mean, model.sd).sum(-1)
    means = theta @ model.matrix.T + model.offset
    density = [multivariate_normal.logpdf(row - means, np.zeros(2), model.noise) for row in rows]
    return prior + np.sum(density, axis=0) + len(rows) * np.log(x_sd).sum()


def test_log_prob_is_exact(posterior, linear_gaussian, fitted):
    exact = exact_log_prob(linear_gaussian, fitted[2], THETA, OBSERVED[None])
    np.testing.assert_allclose(posterior.log_prob(THETA, OBSERVED), exact, rtol=1e-4, atol=1e-3)
    assert posterior.log_prob(THETA[0], OBSERVED).shape == ()


def test_rows_multiply(posterior, linear_gaussian, fitted):
    rows = OBSERVED + np.array([[0.0, 0.0], [2.0, -10.0], [-1.0, 20.0]])
    exact = exact_log_prob(linear_gaussian, fitted[2], THETA, rows)
    np.testing.assert_allclose(posterior.log_prob(THETA, rows), exact, rtol=1e-4, atol=1e-3)


def test_log_prob_is_minus_infinity_outside_the_prior(fitted):
    boxed = Posterior(Prior.uniform([0.0, -1.0], [1.0, 1.0]), fitted[1])
    inside, outside = boxed.log_prob([[0.5, 0.0], [1.5, 0.0]], OBSERVED)
    assert np.isfinite(inside)
    assert outside == -np.inf


@pytest.fixture(scope="module")
def draws(posterior):
    return posterior.sample(OBSERVED, N, seed=3)


def test_draws_are_of_the_posterior(draws, linear_gaussian):
    """A rough check of units and axes: exactness is a matter of the statistical tests."""
    mean, covariance = linear_gaussian.posterior(OBSERVED[None])
    sd = np.sqrt(np.diagonal(covariance))
    flat = np.asarray(draws, float)
    np.testing.assert_allclose(flat.mean(0), mean, atol=0.25 * sd.max())
    np.testing.assert_allclose(flat.std(0), sd, rtol=0.2)
    assert np.corrcoef(flat.T)[0, 1] == pytest.approx(covariance[0, 1] / sd.prod(), abs=0.15)


def test_few_draws_are_as_many_as_were_asked_for_and_differ(posterior):
    few = posterior.sample(OBSERVED, 101, seed=3)
    assert few.values.shape == (2, 51, 2)  # whole chains
    assert len(np.unique(np.asarray(few), axis=0)) > 95  # of particles far from each other in the run


def test_draws_tell_how_they_were_made(draws):
    assert draws.values.shape == (2, N // 2, 2)
    assert draws.names == ("theta_1", "theta_2")
    assert draws.seed == 3
    np.testing.assert_array_equal(draws.x_o, OBSERVED[None])
    assert np.isfinite(draws.log_evidence)
    assert len(draws.info["temperatures"]) == 2
    assert all(path[-1] == 1 and np.all(np.diff(path) > 0) for path in draws.info["temperatures"])
    assert 0 < draws.info["acceptance"] < 1


def test_another_observation_does_not_compile_anew(posterior, draws):
    posterior.log_prob(THETA, OBSERVED)
    before = len(TRACES)
    assert before > 0
    other = posterior.sample(OBSERVED + [1.0, 10.0], N, seed=4)
    posterior.log_prob(THETA + 0.1, OBSERVED + 1.0)
    assert len(TRACES) == before
    assert not np.array_equal(other.values, draws.values)


def test_the_seed_fixes_the_draws(posterior, draws):
    np.testing.assert_array_equal(posterior.sample(OBSERVED, N, seed=3).values, draws.values)
    assert not np.array_equal(posterior.sample(OBSERVED, N, seed=4).values, draws.values)


def test_the_mode_is_found(posterior, draws, linear_gaussian):
    mode = posterior.map(OBSERVED, seed=3)
    mean, covariance = linear_gaussian.posterior(OBSERVED[None])
    np.testing.assert_allclose(mode, mean, atol=0.02 * np.sqrt(np.diagonal(covariance)).min())


@pytest.mark.parametrize(
    ("name", "ours"), [("set_default_x", "sample"), ("sample_batched", "sample_many"), ("potential", "log_prob")]
)
def test_names_of_other_libraries_are_answered(posterior, name, ours):
    with pytest.raises(AttributeError, match=f"no attribute '{name}'; try posterior.{ours}"):
        getattr(posterior, name)
    assert not hasattr(posterior, "something_else")


@pytest.mark.parametrize("n", [1, 999, 1001])
def test_at_least_the_draws_asked_for(n):
    sampler = TemperedSmc(islands=3, particles=400)
    assert sampler.prior_draws_needed(n) % 3 == 0
    assert sampler.prior_draws_needed(n) >= 400


def test_a_posterior_survives_a_file(fitted, tmp_path):
    posterior = Posterior(*fitted[:2], Chains(RandomWalk(), chains=4))
    posterior.save(tmp_path / "posterior", note={"seed": 3})
    again = Posterior.load(tmp_path / "posterior")
    np.testing.assert_array_equal(again.log_prob(THETA, OBSERVED), posterior.log_prob(THETA, OBSERVED))
    assert again.sampler == posterior.sampler
    assert again.prior.names == posterior.prior.names


def test_the_latest_fit_of_a_run_is_loaded(fitted, tmp_path):
    for number, particles in enumerate((1000, 2000)):
        posterior = Posterior(*fitted[:2], TemperedSmc(particles=particles))
        folder = tmp_path / "rounds" / f"{number:02d}"
        folder.mkdir(parents=True)
        posterior.save(folder / "likelihood")
    assert Posterior.load(tmp_path).sampler == posterior.sampler


def test_what_is_not_a_posterior_is_not_loaded(fitted, tmp_path):
    save_module(tmp_path / "likelihood", fitted[1])
    with pytest.raises(InputError, match="expected a saved posterior"):
        Posterior.load(tmp_path / "likelihood")
    with pytest.raises(StoreError):
        Posterior.load(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("x_o", "message"),
    [
        ([1.0, 2.0, 3.0], "length 2, as the simulations; got 3"),
        ([np.nan, np.nan], r"NaN or inf in coordinates \[0, 1\]"),
        ([np.inf, 35.0], r"NaN or inf in coordinates \[0\]"),
        ("data.csv", "array of numbers; got .data.csv.; try np.loadtxt"),
        (104.0, "one data vector or rows"),
        (np.zeros((2, 2, 2)), "one data vector or rows"),
        (np.zeros((0, 2)), "one data vector or rows"),
    ],
)
def test_a_wrong_observation_is_explained(posterior, x_o, message):
    for ask in (lambda: posterior.sample(x_o, N), lambda: posterior.log_prob(THETA, x_o)):
        with pytest.raises(InputError, match=message):
            ask()


@pytest.mark.parametrize("theta", [[1.0, 2.0, 3.0], 1.0, np.zeros((2, 3)), np.zeros((1, 2, 2))])
def test_a_wrong_theta_is_explained(posterior, theta):
    with pytest.raises(InputError, match=r"expected theta of shape \(2,\) or \(n, 2\)"):
        posterior.log_prob(theta, OBSERVED)


@pytest.mark.parametrize("n", [0, -5])
def test_no_draws_are_refused(posterior, n):
    with pytest.raises(InputError, match="positive number of draws"):
        posterior.sample(OBSERVED, n)


def test_observations_of_different_lengths_are_refused(posterior):
    with pytest.raises(InputError, match="same number of rows"):
        posterior.sample_many([OBSERVED, np.stack([OBSERVED, OBSERVED])], N)


def test_an_observation_unlike_every_simulation_is_named(posterior):
    far = OBSERVED + [0.0, 1000.0]
    with pytest.warns(UnleWarning, match=r"x_o\[1\] = 1035 lies outside the simulations"):
        posterior.log_prob(THETA, far)
    with pytest.warns(UnleWarning, match=r"x_o\[1\]"):
        posterior.sample(far, N, seed=3)


def test_an_ordinary_observation_does_not_warn(posterior):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        posterior.log_prob(THETA, OBSERVED)


def test_a_likelihood_that_is_nowhere_finite_is_explained(posterior, draws):
    nowhere = eqx.tree_at(lambda p: p.likelihood.offset, posterior, jnp.array(jnp.nan, jnp.float32))
    with pytest.raises(InputError, match="not finite anywhere"):
        nowhere.sample(OBSERVED, N)


def test_chains_that_never_moved_are_no_draws(draws):
    stuck = dataclasses.replace(draws, log_evidence=float("nan"), info={"acceptance": 0.0})
    assert _is_sampled(draws)
    assert not _is_sampled(stuck)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TemperedSmc(islands=0), "at least one island"),
        (lambda: TemperedSmc(islands=50, particles=1000), "try particles=25000"),
        (lambda: Chains(chains=1), "chains >= 2"),
        (lambda: Chains(warm_up=0), "warm_up >= 1"),
        (lambda: Chains(thin=0), "thin >= 1"),
    ],
)
def test_a_sampler_without_sense_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()
