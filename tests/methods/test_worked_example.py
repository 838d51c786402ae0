"""The method of CONTRIBUTING, `examples/linear_gaussian.py`: its posterior is the one of its least-squares fit."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from unle.posterior import Posterior, TemperedSmc
from unle.space import Prior
from unle_bench.methods import Registry

FILE = Path(__file__).parents[2] / "examples" / "linear_gaussian.py"
SAMPLER = TemperedSmc(islands=2, particles=1000)
X_O = 1.0


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("linear_gaussian", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pairs():
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(800, 1))
    return theta, theta + 0.5 * rng.normal(size=(800, 1))


@pytest.fixture(scope="module")
def posterior(example, pairs):
    return example.LinearGaussianNLE(Prior.normal([0.0], [1.0]), SAMPLER).fit(pairs, seed=1)


def moments(posterior):
    draws = posterior.sample([X_O], 4000, seed=2)
    values = np.asarray(draws)[:, 0]
    return values.mean(), values.std()


def test_the_posterior_is_that_of_the_least_squares_fit(posterior, pairs):
    theta, x = pairs[0][:, 0], pairs[1][:, 0]
    slope, intercept = np.polyfit(theta, x, 1)
    variance = np.mean((x - intercept - slope * theta) ** 2)
    exact, exact_sd = slope * (X_O - intercept) / (slope**2 + variance), np.sqrt(variance / (slope**2 + variance))
    mean, sd = moments(posterior)
    # 2,000 particles, of which at least 500 are worth one independent draw each: five standard errors.
    assert abs(mean - exact) < 5 * exact_sd / np.sqrt(500)
    assert abs(sd / exact_sd - 1) < 5 / np.sqrt(2 * 500)


def test_pairs_that_do_not_belong_together_return_the_prior(example, pairs):
    shuffled = pairs[0], np.random.default_rng(1).permutation(pairs[1])
    _, sd = moments(example.LinearGaussianNLE(Prior.normal([0.0], [1.0]), SAMPLER).fit(shuffled, seed=1))
    assert sd > 0.8


def test_it_comes_back_from_a_file(posterior, tmp_path):
    posterior.save(tmp_path / "mine")
    grid = np.linspace(-2, 2, 9)[:, None]
    again = Posterior.load(tmp_path / "mine")
    np.testing.assert_array_equal(again.log_prob(grid, [X_O]), posterior.log_prob(grid, [X_O]))


def test_the_benchmark_finds_it():
    assert "linear_gaussian" in Registry.with_files([str(FILE)]).methods
