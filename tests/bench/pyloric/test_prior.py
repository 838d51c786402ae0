"""How many draws of the pyloric network's prior are valid, against an earlier count."""

import os

import numpy as np
import pytest
from scipy.stats import betabinom

import unle
from unle_bench.pyloric import statistics
from unle_bench.pyloric.simulators import OnCpu

pytestmark = pytest.mark.slow
COUNTED, OF = 95, 10_000  # valid, of draws with other seeds
N = 1500  # three minutes on one core
FALSE_ALARMS = 1e-3


@pytest.fixture(scope="module")
def simulations():
    task = unle.task("pyloric")
    return unle.simulate(task.simulator, task.prior, N, seed=20_240, workers=os.cpu_count())


@pytest.fixture(scope="module")
def fewest_and_most():
    """How many of N may be valid, given the count: its own error is in the width."""
    ends = (FALSE_ALARMS / 2, 1 - FALSE_ALARMS / 2)
    return betabinom.ppf(ends, N, COUNTED + 1, OF - COUNTED + 1)


def test_one_draw_in_a_hundred_is_valid(simulations, fewest_and_most):
    fewest, most = fewest_and_most
    assert fewest <= simulations.valid.sum() <= most
    assert fewest > 0  # a rule that accepts nothing would be seen


def test_a_rule_that_forgets_the_order_of_bursts_would_be_seen(simulations, fewest_and_most, monkeypatch):
    bursting = np.flatnonzero(np.isfinite(simulations.x[:, :4]).all(axis=1))[:100]
    monkeypatch.setattr(statistics, "TRIPHASIC_SHARE", 0.0)
    simulator = OnCpu()
    again = [
        simulator(theta.astype(float), np.random.default_rng(int(k)))
        for k, theta in zip(bursting, simulations.theta[bursting], strict=True)
    ]
    assert np.isfinite(again).all(axis=1).sum() > fewest_and_most[1]  # in these alone
