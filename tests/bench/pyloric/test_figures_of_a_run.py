"""The paper's figures of a run, and the script that measures one, on a stand-in for the network.

The stand-in has the network's parameters, statistics and observation, and fails as often as it works, but takes no
time.
"""

import importlib.util
import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from typer.testing import CliRunner

from unle.cli import app
from unle.methods import SUNLE, region_fit
from unle.models import EnergyModel, Ensemble, NoEnergy, Region, with_validity
from unle.posterior import Chains, Draws, Posterior, TemperedSmc, WalkingExchange
from unle.samplers import RandomWalk
from unle.simulators import simulate_into
from unle.space import fit_theta_space, fit_x_space
from unle.store import RunDirectory
from unle.train import EnergyTraining, GaussianTraining, Rows, ValidityTraining, fit_validity, make_splits
from unle_bench.pyloric.simulators import observed
from unle_bench.pyloric.specification import LOWER, UPPER
from unle_bench.tasks import pyloric

pytestmark = pytest.mark.slow


def stand_in(theta, rng):
    """Return statistics within a factor of two of the animal's, or nothing."""
    share = (np.asarray(theta) - LOWER) / (UPPER - LOWER)
    if rng.random() > share[8]:
        return np.full(8, np.nan)
    return observed() * np.exp(share[:8] - 0.5 + 0.1 * rng.normal(size=8))


@pytest.fixture
def task(monkeypatch):
    one = replace(pyloric.TASKS["pyloric"], simulator=stand_in, on_device=None)
    monkeypatch.setitem(pyloric.TASKS, "pyloric", one)
    return one


def unle(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture
def run(task, tmp_path):
    """A run directory with two rounds, and a posterior that is fitted in a second."""
    made = RunDirectory.create(tmp_path / "run", {"model": "pyloric", "method": "sunle"})
    with made.simulations() as store:
        for number in (0, 1):
            simulate_into(store, stand_in, np.asarray(task.prior.sample(300, seed=number), float), round=number)
        rows = store.read()
    theta, x = rows.theta[rows.valid], rows.x[rows.valid]
    theta_space, x_space = fit_theta_space(theta), fit_x_space(x)
    t, w = (apply_space(*pair) for pair in ((theta_space, theta), (x_space, x)))
    splits = make_splits(jr.key(0), len(t), members=2)
    bases = GaussianTraining(width=4, depth=1, iterations=1).fit(jr.key(1), Rows(t, w, splits))
    likelihood = Ensemble(theta_space, x_space, EnergyModel(bases, NoEnergy()), jnp.zeros(2))
    region = Region(theta_space, t.min(axis=0), t.max(axis=0))
    posterior = Posterior(task.prior, with_validity(likelihood, region), TemperedSmc())
    posterior.save(made.likelihood(1))
    weights = np.exp(posterior.log_prob(theta, task.observation(1)))
    chosen = np.random.default_rng(0).choice(len(theta), 1000, p=weights / weights.sum())
    jitter = 0.01 * (UPPER - LOWER) * np.random.default_rng(1).normal(size=(1000, 31))
    draws = np.clip(theta[chosen] + jitter, LOWER, UPPER)
    Draws(draws[None], task.prior.names, task.observation(1)[None], 0).save(made.draws)
    return made


def apply_space(space, rows):
    return jax.vmap(space.forward)(jnp.asarray(rows, jnp.float32))


def test_every_figure_of_a_run_is_drawn(run, tmp_path):
    out = tmp_path / "paper"
    result = unle("paper", "--only", "pyloric", "--pyloric", run.path, "--out", out)
    assert "(4 pictures)" in result.stdout
    for number, axes in ((1, 2), (2, 8), (3, 1), (4, 1)):  # the last two are mosaics in one axis
        png, svg = (out / f"pyloric-{number}.{suffix}" for suffix in ("png", "svg"))
        assert inked(png) > 0.005, png
        assert svg.read_text().count('id="axes_') >= axes, svg
    page = (out / "index.html").read_text()
    assert "posterior mean and at the most probable" in page
    assert "rows are missing" not in result.output  # nothing is left to be made


def inked(png: Path) -> float:
    """Return the share of a picture that is not white."""
    from matplotlib.image import imread

    return float((imread(png)[..., :3].min(axis=-1) < 0.9).mean())


@pytest.fixture
def script():
    path = Path(__file__).parents[3] / "scripts" / "pyloric_sunle.py"
    spec = importlib.util.spec_from_file_location("pyloric_sunle", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_script_measures_rounds_energies_and_the_posterior(task, script, tmp_path, monkeypatch, capsys):
    small = {
        "base": GaussianTraining(width=8, depth=1, iterations=50),
        "training": EnergyTraining(iterations=100, chunk=50),
        "sampler": Chains(RandomWalk(), chains=20, warm_up=200),
    }
    monkeypatch.setattr(script.unle, "SUNLE", partial(SUNLE, members=2, **small))
    quick = partial(fit_validity, settings=ValidityTraining(members=2, width=16, depth=2, iterations=300))
    monkeypatch.setattr(region_fit, "fit_validity", quick)
    options = ["--engine", "cpu", "--first", "300", "--rounds", "1", "--size", "200", "--resimulate", "400"]
    monkeypatch.setattr("sys.argv", ["pyloric_sunle.py", *options, "--json", str(tmp_path / "r.json")])
    script.main()
    lines = capsys.readouterr().out.splitlines()
    assert [text.split()[0] for text in lines[:4]] == ["round", "round", "energies", "posterior"]
    record = json.loads((tmp_path / "r.json").read_text())
    assert [one["simulations"] for one in record["rounds"]] == [300, 200]
    final = record["posterior"]
    assert final["simulations"] == 400
    assert final["energy_score"] < record["rounds"][0]["energy_score"]
    assert 0 < final["predicted"] < 1
    assert f"{final['predicted']:.4f}" in lines[4]


def test_the_script_runs_the_algorithm_of_the_paper(task, script, tmp_path, monkeypatch):
    few = WalkingExchange(chains=20, warm_up=20, thin=20)
    paper = SUNLE.paper(task.prior, **script.PAPER | {"width": 10, "depth": 1, "iterations": 20})
    monkeypatch.setattr(script.unle.SUNLE, "paper", lambda prior, **settings: replace(paper, exchange=few))
    options = ["--paper", "--engine", "cpu", "--first", "300", "--rounds", "1", "--size", "200", "--resimulate", "400"]
    monkeypatch.setattr("sys.argv", ["pyloric_sunle.py", *options, "--json", str(tmp_path / "r.json")])
    script.main()
    record = json.loads((tmp_path / "r.json").read_text())
    assert record["method"] == "sunle-paper"
    assert [one["simulations"] for one in record["rounds"]] == [300, 200]
    assert "predicted" not in record["posterior"]
    assert record["energies"]["kept"] == "as printed"
