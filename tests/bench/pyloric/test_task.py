"""The pyloric network as a built-in task: prior, observation, statistics, invalid rows with their reason."""

import numpy as np
import pytest

import unle
from unle.errors import InputError
from unle.simulators import JaxSimulator, simulate_at
from unle_bench.pyloric import specification as spec
from unle_bench.pyloric.bursts import MOST_BURSTS, Bursts
from unle_bench.pyloric.simulators import OnCpu, observed, statistics
from unle_bench.pyloric.statistics import FREE, OBSERVED, explain, fifteen, free_statistics
from unle_bench.tasks.pyloric import on_device


def made_of(*trains, unit=40) -> Bursts:
    """Return bursts from (start, end) pairs in ms, one list per neuron."""
    starts, ends = np.full((2, 3, MOST_BURSTS), 77_777)  # garbage beyond the last burst must not matter
    for j, train in enumerate(trains):
        for k, (start, end) in enumerate(train):
            starts[j, k], ends[j, k] = unit * start, unit * end
    return Bursts(starts, ends, np.array([len(train) for train in trains]))


PM = [(1000 * k, 1000 * k + 100 + 10 * k) for k in range(6)]
LP = [(1000 * k + 300, 1000 * k + 500) for k in range(5)]
PY = [(1000 * k + 600 + 5 * k, 1000 * k + 900) for k in range(5)]


def test_statistics_by_hand():
    x = fifteen(free_statistics(made_of(PM, LP, PY)))
    exact = [1000, 125, 200, 290, 0.125, 0.2, 0.29, 0.3, 0.61, 300, 310, 180, 110, 0.18, 0.11]
    np.testing.assert_allclose(x, exact)  # the sixth AB/PD burst has a duration, but no complete cycle
    assert explain(x) == ""


def test_nine_of_ten_cycles_must_be_triphasic():
    pm = [(500 * k, 500 * k + 60) for k in range(11)]
    lp, py = ([(500 * k + s, 500 * k + s + 50) for k in range(10)] for s in (150, 300))
    assert np.isfinite(statistics(made_of(pm, lp[:-1], py))).all()
    x = statistics(made_of(pm, lp[:-2], py))
    assert explain(x) == "not triphasic"
    assert np.isfinite(x[:4]).all()
    twice = [*lp[:3], (1790, 1850), *lp[3:]]  # a second burst in the fourth cycle, and one missing elsewhere
    assert np.isfinite(statistics(made_of(pm, twice, py))).all()
    assert explain(statistics(made_of(pm, [*twice[:7], *twice[8:]], py))) == "not triphasic"


def test_reasons():
    assert explain(statistics(made_of(PM, LP, []))) == "no bursts: PY"
    assert explain(statistics(made_of([], [], PY))) == "no bursts: AB/PD, LP"
    assert explain(statistics(made_of(PM[:1], LP, PY))) == "no period: AB/PD bursts only once"
    assert explain(statistics(made_of(PM, LP, []), "paper")) == "no bursts: PY"


def test_fifteen_are_functions_of_the_eight():
    np.testing.assert_allclose(fifteen(OBSERVED[list(FREE)]), OBSERVED[:15], rtol=1e-12)
    np.testing.assert_array_equal(observed("paper"), OBSERVED[:15])
    assert len(observed("plateaus")) == 18
    with pytest.raises(InputError, match="free, paper, plateaus"):
        OnCpu("all")


def test_task():
    task = unle.task("pyloric")
    assert (task.dim_theta, task.dim_x, task.observation_source) == (31, 8, "recorded")
    assert len(set(task.prior.names)) == 31
    assert task.prior.names[0] == "AB/PD Na"
    theta = task.prior.sample(50, seed=0)
    assert ((theta >= spec.LOWER - 1e-6) & (theta <= spec.UPPER + 1e-6)).all()
    np.testing.assert_allclose(task.observation(1), observed(), rtol=1e-6)
    np.testing.assert_allclose(fifteen(task.observation(1)), unle.task("pyloric_15").observation(1), rtol=1e-5)
    for wrong in (lambda: task.reference(task.observation(1), 5), lambda: task.log_likelihood(theta, np.ones(8))):
        with pytest.raises(InputError, match="of pyloric is not known: its likelihood has no formula"):
            wrong()
    with pytest.raises(InputError, match="recorded, not simulated"):
        task.true_parameters(1)
    with pytest.raises(InputError, match="number 1; got 2"):
        task.observation(2)
    assert task.simulator_here is task.simulator  # there is no accelerator here
    assert isinstance(task.on_device, JaxSimulator)
    assert task.on_device.explain is explain


def test_invalid_simulations_are_rows_with_a_reason():
    task = unle.task("pyloric")
    theta = task.prior.sample(4, seed=3)
    simulations = simulate_at(task.simulator, theta, seed=1)
    assert simulations.x.shape == (4, 8)
    again = simulate_at(task.simulator, theta[:2], seed=1)
    np.testing.assert_array_equal(again.x, simulations.x[:2])
    for x, reason in zip(simulations.x, simulations.reasons, strict=True):
        assert reason == explain(x)
    assert any("no bursts" in reason for reason in simulations.reasons)


def test_sizes_of_batches():
    simulator = on_device(batch=(4, 2))
    assert (simulator.batch, simulator.sizes) == (4, (2, 4))
