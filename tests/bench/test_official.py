"""Reading the benchmark's files where they are, and doing without where they are not."""

import bz2
import importlib.util
from types import SimpleNamespace

import numpy as np
import pytest

from unle.errors import StoreError
from unle_bench import TASKS, task
from unle_bench.tasks import official

OFFICIAL = [name for name in TASKS if name != "bimodal" and not name.startswith("pyloric")]
installed = pytest.mark.skipif(importlib.util.find_spec("sbibm") is None, reason="needs the sbibm data")


@pytest.fixture
def absent(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


@installed
@pytest.mark.parametrize("name", OFFICIAL)
def test_official_files_are_used_where_installed(name):
    one = task(name)
    assert one.observation_source == "official"
    reference = one.official_reference(3)
    assert reference is not None
    assert reference.shape == (10_000, one.dim_theta)
    assert np.isfinite(one.prior.log_prob(reference)).mean() > 0.999
    # the observation comes from those parameters: more likely under them than under most others
    here = one.log_likelihood(one.true_parameters(3)[None], one.observation(3))
    elsewhere = one.log_likelihood(one.prior.sample(200, seed=0), one.observation(3))
    assert (here > elsewhere).mean() > 0.9


@installed
def test_loading_does_not_import_the_package():
    import sys

    task("two_moons").observation(1)
    assert "sbibm" not in sys.modules


@pytest.mark.parametrize("name", [name for name in TASKS if TASKS[name].observations == 10])
def test_own_observations_where_absent(name, absent):
    one = task(name)
    assert one.observation_source == "own"
    assert one.official_reference(1) is None
    everything = np.stack([one.observation(i) for i in range(1, 11)])
    assert len(np.unique(everything, axis=0)) == 10
    np.testing.assert_array_equal(one.observation(2), one.observation(2))
    assert np.isfinite(one.log_likelihood(one.true_parameters(2)[None], one.observation(2))).all()


def test_own_observations_stay_what_they_are(absent):
    """Published numbers may rest on them."""
    np.testing.assert_allclose(task("bimodal").observation(1), [0.0, 0.0])
    np.testing.assert_allclose(task("bimodal").true_parameters(1), [2.0, 2.0])
    np.testing.assert_allclose(task("two_moons").observation(1), [-0.962245, 0.154662], rtol=1e-4)


def _plant(root, *, observation="a,b\n0.1,0.2\n"):
    folder = root / "tasks" / "two_moons" / "files" / "num_observation_1"
    folder.mkdir(parents=True)
    (folder / "observation.csv").write_text(observation)
    (folder / "true_parameters.csv").write_text("a,b\n0.3,0.4\n")
    (folder / "reference_posterior_samples.csv.bz2").write_bytes(bz2.compress(b"a,b\n1,2\n3,4\n"))


def test_files_are_read_as_written(tmp_path, monkeypatch):
    _plant(tmp_path)
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    one = task("two_moons")
    assert one.observation_source == "official"
    np.testing.assert_allclose(one.observation(1), [0.1, 0.2])
    np.testing.assert_allclose(one.true_parameters(1), [0.3, 0.4])
    np.testing.assert_allclose(one.official_reference(1), [[1, 2], [3, 4]])
    assert task("slcp").observation_source == "own"  # not among the planted files


def test_a_damaged_file_is_named(tmp_path, monkeypatch):
    _plant(tmp_path, observation="a,b\n0.1,oops\n")
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    with pytest.raises(StoreError, match=r"observation\.csv"):
        task("two_moons").observation(1)
    with pytest.raises(StoreError, match=r"num_observation_2"):
        task("two_moons").observation(2)


def test_a_package_without_a_folder_counts_as_absent(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: SimpleNamespace(submodule_search_locations=None))
    assert official.official_folder("two_moons") is None
