"""What must hold for every simulator: units do not matter, failures do, and knowing nothing is said.

A new method joins by a line in `METHODS`; the worked example of CONTRIBUTING, `examples/linear_gaussian.py`, is there.
"""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import unle
from unle.methods import AUNLE
from unle.models import GivenValid
from unle.posterior import TemperedSmc
from unle.space import Prior
from unle.train import BaseParticles, DataParticles, EnergyTraining, GaussianTraining

PRIOR = Prior.normal([0.0], [1.0])
ROWS = 800


def tiny(prior=PRIOR):
    base = GaussianTraining(width=16, depth=2, iterations=200, batch=128, chunk=50)
    training = EnergyTraining(width=16, depth=2, iterations=150, batch=128, chunk=50)
    return AUNLE(prior, base=base, training=training, members=2, sampler=TemperedSmc(islands=2, particles=1000))


def example(name):
    path = Path(__file__).parents[2] / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def linear_gaussian(prior=PRIOR):
    return example("linear_gaussian").LinearGaussianNLE(prior, TemperedSmc(islands=2, particles=1000))


METHODS = pytest.mark.parametrize("method", [tiny, linear_gaussian], ids=["aunle", "linear_gaussian"])


@pytest.fixture(scope="module")
def pair():
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(ROWS, 1))
    return theta, theta + 0.5 * rng.normal(size=(ROWS, 1))


def mean_and_sd(posterior, x_o):
    draws = np.asarray(posterior.sample([x_o], 4000, seed=2))
    return float(draws.mean()), float(draws.std())


@METHODS
def test_units_and_order_do_not_matter(pair, method):
    theta, x = pair
    mean, sd = mean_and_sd(method().fit((theta, x), seed=1), 1.0)
    order = np.argsort(x[:, 0])
    assert mean_and_sd(method().fit((theta[order], x[order]), seed=1), 1.0) == (mean, sd)  # to the bit
    other, other_sd = mean_and_sd(method().fit((theta, 1e6 * x + 5e6), seed=1), 6e6)
    assert abs(other - mean) < 0.1 * sd
    assert other_sd == pytest.approx(sd, rel=0.1)


def test_data_without_information_are_called_so(pair):
    theta, _ = pair
    x = np.random.default_rng(5).normal(size=(ROWS, 1))
    notes = []
    with pytest.warns(unle.UnleWarning, match="ignores theta"):
        posterior = tiny().fit((theta, x), seed=1, on_metrics=lambda **record: notes.append(record))
    information = next(record for record in notes if record["stage"] == "information")
    assert information["nats"] < 2 * information["error"]
    mean, sd = mean_and_sd(posterior, 0.3)
    assert abs(mean) < 0.15  # the prior, as far as 800 rows can tell a slope of 1/sqrt(800) from zero
    assert sd == pytest.approx(1, rel=0.1)


@METHODS
def test_failures_that_depend_on_theta_count(pair, method):
    """P(valid | theta) = 1 / (1 + exp(3 theta)): the exact mean at x_o = 1 is .375, without the factor .8."""
    theta, x = pair
    lost = np.random.default_rng(3).random(ROWS) < 1 / (1 + np.exp(-3 * theta[:, 0]))
    failed = np.where(lost[:, None], np.nan, x)
    mean, sd = mean_and_sd(method().fit((theta, failed), seed=1), 1.0)
    axis = np.linspace(-5, 5, 4001)
    weights = np.exp(-0.5 * axis**2 - 2 * (1 - axis) ** 2 - np.logaddexp(0, 3 * axis))
    weights /= weights.sum()
    exact = weights @ axis
    exact_sd = np.sqrt(weights @ (axis - exact) ** 2)
    # 400 valid rows: the noise and P(valid) are known to about a tenth of a posterior sd each.
    assert abs(mean - exact) < 0.35 * exact_sd
    assert sd == pytest.approx(exact_sd, rel=0.3)


@pytest.mark.parametrize("particles", [DataParticles(), BaseParticles()], ids=["at the data", "of the prior"])
def test_failures_count_where_energies_are_dropped(pair, particles):
    """Bases are of valid data; only an energy whose particles follow the prior has learned P(valid | theta) itself."""
    theta, x = pair
    failed = np.where((np.arange(ROWS) % 3 == 0)[:, None], np.nan, x)
    training = EnergyTraining(particles, width=4, depth=1, iterations=1)
    notes = []
    method = AUNLE(PRIOR, base=GaussianTraining(width=4, depth=1, iterations=1), training=training, members=2)
    posterior = method.fit((theta, failed), seed=1, on_metrics=lambda **record: notes.append(record))
    assert isinstance(posterior.likelihood, GivenValid)
    assert next(record for record in notes if record["stage"] == "validity")["rate"] == pytest.approx(2 / 3, abs=0.01)
