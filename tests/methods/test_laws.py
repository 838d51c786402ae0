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
from unle.train import BaseParticles, DataParticles, EnergyTraining

ROWS, DRAWS, NOISE = 600, 4000, 0.5  # valid rows in every test


def example(name):
    path = Path(__file__).parents[2] / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


METHODS = {
    "aunle": lambda small: small,
    "linear_gaussian": lambda small: example("linear_gaussian").LinearGaussianNLE(small.prior, small.sampler),
}


@pytest.fixture(params=METHODS)
def method(request, small_aunle):
    return METHODS[request.param](small_aunle)


def simulated(n):
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(n, 1))
    return theta, theta + NOISE * rng.normal(size=(n, 1))


def draw(posterior, x_o):
    return np.asarray(posterior.sample([x_o], DRAWS, seed=2), float)


def until_valid(theta, x):
    """Return the first rows, until so many of them are valid that compiled programs serve again."""
    rows = np.flatnonzero(np.isfinite(x[:, 0]))[ROWS - 1] + 1
    return theta[:rows], x[:rows]


def test_units_and_order_do_not_matter(method):
    theta, x = simulated(ROWS)
    posterior = method.fit((theta, x), seed=1)
    draws = draw(posterior, 1.0)
    order = np.argsort(x[:, 0])
    np.testing.assert_array_equal(draw(method.fit((theta[order], x[order]), seed=1), 1.0), draws)  # to the bit
    other = draw(method.fit((theta, 1e6 * x + 5e6), seed=1), 6e6)
    # Draws of other random numbers would differ by 3.3 sqrt(2 * 4 / 4000) = 0.15 standard deviations; these are the
    # same, and only rounding may change which proposals are accepted.
    assert abs(other.mean() - draws.mean()) < 0.1 * draws.std()
    assert other.std() == pytest.approx(draws.std(), rel=0.1)
    # Companion: an observation that is off by one standard deviation of the noise.
    assert abs(draw(posterior, 1.0 + NOISE).mean() - draws.mean()) > 0.1 * draws.std()


def test_data_without_information_are_called_so(small_aunle, agreement):
    theta, _ = simulated(ROWS)
    x = np.random.default_rng(5).normal(size=(ROWS, 1))
    notes = []
    with pytest.warns(unle.UnleWarning, match="ignores theta"):
        posterior = small_aunle.fit((theta, x), seed=1, on_metrics=lambda **record: notes.append(record))
    information = next(record for record in notes if record["stage"] == "information")
    assert information["nats"] < 2 * information["error"]
    # The prior, as far as the rows can tell a slope of 1 / sqrt(600) from zero.
    exact = agreement(0.0, 1.0, rows=ROWS, leverage=0.3**2, learned=0.0)
    draws = draw(posterior, 0.3)
    assert exact.holds(draws), exact.errors(draws)
    assert not exact.holds(0.3 + draws)


def test_failures_that_depend_on_theta_count(method, agreement):
    """P(valid | theta) = 1 / (1 + exp(3 theta)): the exact mean at x_o = 1 is .375, without the factor .8."""
    theta, x = simulated(3 * ROWS)
    lost = np.random.default_rng(3).random(3 * ROWS) < 1 / (1 + np.exp(-3 * theta[:, 0]))
    posterior = method.fit(until_valid(theta, np.where(lost[:, None], np.nan, x)), seed=1)
    axis = np.linspace(-5, 5, 4001)
    likelihood = -0.5 * axis**2 - 0.5 * ((1 - axis) / NOISE) ** 2

    def moments(log_weights):
        weights = np.exp(log_weights - log_weights.max())
        mean = np.average(axis, weights=weights)
        return mean, np.sqrt(np.average((axis - mean) ** 2, weights=weights))

    # Valid rows have theta around -.8 +- .7: the line is needed one and a half of that away.  As many rows, valid or
    # not, teach P(valid), with its two coefficients.
    leverage = (1 + 1.7**2) + 2
    exact = agreement(*moments(likelihood - np.logaddexp(0, 3 * axis)), rows=ROWS, leverage=leverage)
    draws = draw(posterior, 1.0)
    assert exact.holds(draws), exact.errors(draws)
    without = agreement(*moments(likelihood), rows=ROWS, leverage=leverage)
    assert not without.holds(draws)


@pytest.mark.parametrize("particles", [DataParticles(), BaseParticles()], ids=["at the data", "of the prior"])
def test_failures_count_where_energies_are_dropped(small_aunle, particles):
    """Bases are of valid data; only an energy whose particles follow the prior has learned P(valid | theta) itself."""
    theta, x = simulated(3 * ROWS // 2)
    failed = np.where((np.arange(len(x)) % 3 == 0)[:, None], np.nan, x)
    training = EnergyTraining(particles, width=4, depth=1, iterations=1)
    notes = []
    method = AUNLE(small_aunle.prior, base=small_aunle.base, training=training, members=2)
    posterior = method.fit((theta, failed), seed=1, on_metrics=lambda **record: notes.append(record))
    assert isinstance(posterior.likelihood, GivenValid)
    assert next(record for record in notes if record["stage"] == "validity")["rate"] == pytest.approx(2 / 3, abs=0.01)
