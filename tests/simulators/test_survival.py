"""The long checks of what simulations survive: the experiments of `scripts/survival.py`, which says what each does."""

import importlib.util
import sys
from pathlib import Path

import cloudpickle
import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "survival.py"


@pytest.fixture(scope="module")
def survival():
    spec = importlib.util.spec_from_file_location("survival", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["survival"] = module
    spec.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)  # workers cannot import it
    yield module
    cloudpickle.unregister_pickle_by_value(module)
    del sys.modules["survival"]


def test_a_few_kills_of_a_short_run(survival):
    assert survival.kills(n=300, times=2)


@pytest.mark.slow
def test_twenty_kills(survival):
    assert survival.kills()


@pytest.mark.slow
def test_a_mischievous_simulator_on_four_processes(survival):
    assert survival.mischief()


@pytest.mark.slow
def test_a_dask_cluster_that_loses_a_worker_and_gains_one(survival):
    assert survival.dask()


@pytest.mark.slow
def test_all_engines_give_the_same_bits(survival):
    assert survival.identical()


@pytest.mark.slow
def test_a_million_simulations_through_dask(survival):
    assert survival.million()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["aunle", "sunle", "streamed"])
def test_kills_while_training_and_sampling(survival, method):
    assert survival.stages([method])


@pytest.mark.slow
def test_a_million_simulations_in_a_hundred_megabytes(survival):
    assert survival.growth(n=1_000_000)


@pytest.mark.slow
def test_two_hundred_damaged_directories(survival):
    assert survival.corruption()
