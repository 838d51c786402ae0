"""A new process that loads a posterior and samples: it imports little, and finds the programs of the one before."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from unle.posterior import Posterior

HEAVY = (
    *("sklearn", "dask", "distributed", "arviz_base", "arviz_stats", "xarray", "pandas", "matplotlib", "rich", "h5py"),
    *("flowjax", "blackjax", "optax", "scipy.stats", "scipy.optimize", "scipy.spatial", "torch", "typer", "jinja2"),
)
MOST_PROGRAMS = 3  # the sampler, and small ones around it

COUNT = """
import json, sys
import jax
events = []
jax.monitoring.register_event_duration_secs_listener(lambda event, _, **__: events.append(event))
jax.monitoring.register_event_listener(lambda event, **_: events.append(event))
import unle
draws = unle.Posterior.load(sys.argv[1]).sample([100.0, 1.0], 1000, seed=1)
print(json.dumps({
    "heavy": [name for name in json.loads(sys.argv[2]) if name in sys.modules],
    "programs": sum("backend_compile" in event for event in events),
    "hits": sum("cache_hits" in event for event in events),
    "sum": float(draws.values.sum()),
}))
"""


def in_new_process(code, *arguments, **environment):
    known = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "UNLE_CACHE"))}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, env=known | environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def saved(linear_gaussian, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "posterior"
    prior, likelihood, _ = linear_gaussian.fitted(np.random.default_rng(0))
    Posterior(prior, likelihood).save(path)
    return path


def test_a_second_process_finds_the_programs_of_the_first_and_imports_little(saved, tmp_path):
    """The seeds of Python's hashes differ, and with them the order of its sets."""
    first, second = (
        in_new_process(COUNT, saved, json.dumps(HEAVY), UNLE_CACHE=str(tmp_path), PYTHONHASHSEED=seed) for seed in "12"
    )
    assert first["heavy"] == []
    assert first["hits"] == 0
    assert second["programs"] <= first["programs"] <= MOST_PROGRAMS
    assert second["hits"] == 1
    assert second["sum"] == first["sum"]


ORDER = """
import json, jax
from numpyro import distributions as dist
import unle
raw = dist.Uniform(0.0, 1.0)
prior = unle.Prior([dist.Uniform(0.0, 1.0), dist.MixtureSameFamily(
    dist.Categorical(probs=jax.numpy.array([0.25, 0.75])), dist.Normal(jax.numpy.array([2.0, 3.0]), 4.0))])
print(json.dumps([[jax.numpy.ravel(leaf).tolist() for leaf in jax.tree.leaves(tree)] for tree in (raw, prior)]))
"""


def test_the_arrays_of_a_prior_have_one_order_in_every_process():
    first, second = (in_new_process(ORDER, PYTHONHASHSEED=seed) for seed in "12")
    assert first[0] != second[0]  # as numpyro has them
    assert first[1] == second[1]


def test_the_public_names_import_nothing_that_a_fit_does_not_need():
    heavy = [name for name in HEAVY if name != "optax"]
    code = (
        f"import json, sys, unle; unle.AUNLE; unle.SUNLE; print(json.dumps([n for n in {heavy} if n in sys.modules]))"
    )
    assert in_new_process(code) == []
