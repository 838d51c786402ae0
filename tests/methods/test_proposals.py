"""Temperatures that simulations support, and boxes around draws."""

import numpy as np
import pytest

from unle.methods.proposals import MARGIN, TAIL, Box, supported_temperature


def ess(log_likelihoods, beta):
    weights = np.exp(beta * (log_likelihoods - log_likelihoods.max()))
    return weights.sum() ** 2 / (weights**2).sum()


def test_the_temperature_is_the_one_at_which_the_wanted_simulations_are_effective():
    values = -0.5 * np.random.default_rng(0).normal(size=500) ** 2 * 400
    beta = supported_temperature(values, effective=40)
    assert 0 < beta < 1
    assert ess(values, beta) == pytest.approx(40, rel=1e-3)
    assert ess(values, 1.0) < 40


def test_a_likelihood_that_is_supported_is_not_tempered():
    assert supported_temperature(np.zeros(50), effective=15) == 1.0


def test_simulations_without_a_likelihood_do_not_count():
    values = np.array([0.0, -1.0, -2.0, np.nan, -np.inf, np.inf])
    assert 0 < supported_temperature(values, effective=1.2) <= 1
    assert supported_temperature(np.full(4, np.nan), effective=2) == 0.0


def test_a_box_holds_the_bulk_and_a_margin():
    t = np.random.default_rng(1).uniform(-1, 3, size=(20_000, 2))
    box = Box.around(t)
    width = 4 * (1 - 2 * TAIL)
    np.testing.assert_allclose(box.high - box.low, (1 + 2 * MARGIN) * width, rtol=0.01)
    assert box.contains(t).all()
    assert not box.contains(t + 10).any()
    assert Box.everywhere(2).contains(1e6 * t).all()
