"""The paper's figures of a run, and the script that measures one, on a stand-in for the network.

The stand-in has the network's parameters, statistics and observation, and fails as often as it works, but takes no time.
"""

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from unle.bench.tasks import pyloric
from unle.cli import app
from unle.pyloric.simulators import observed
from unle.pyloric.specification import LOWER, UPPER

pytestmark = pytest.mark.slow
ROUNDS = ["--method", "sunle", "--rounds", "300,200", "--members", "2", "--iterations", "50", "--draws", "500"]


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


def test_every_figure_of_a_run_is_drawn(task, tmp_path):
    unle("run", "pyloric", *ROUNDS, "--no-report", "--out", tmp_path / "run")
    out = tmp_path / "paper"
    result = unle("paper", "--only", "pyloric", "--pyloric", tmp_path / "run", "--out", out)
    assert "(4 pictures)" in result.stdout
    for number, axes in ((1, 2), (2, 8), (3, 31), (4, 31)):
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


def test_the_script_measures_rounds_energies_and_the_posterior(task, tmp_path, monkeypatch, capsys):
    path = Path(__file__).parents[2] / "scripts" / "pyloric_sunle.py"
    spec = importlib.util.spec_from_file_location("pyloric_sunle", path)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    options = ["--engine", "cpu", "--first", "300", "--rounds", "1", "--size", "200", "--resimulate", "400"]
    monkeypatch.setattr("sys.argv", [str(path), *options, "--json", str(tmp_path / "r.json")])
    script.main()
    lines = capsys.readouterr().out.splitlines()
    assert [text.split()[0] for text in lines[:4]] == ["round", "round", "energies", "posterior"]
    record = json.loads((tmp_path / "r.json").read_text())
    assert [one["simulations"] for one in record["rounds"]] == [300, 200]
    final = record["posterior"]
    assert final["energy_score"] < record["rounds"][0]["energy_score"]
    assert final["valid"] > record["rounds"][0]["valid"]
    assert 0.3 < final["predicted"] < 1
    assert f"{final['predicted']:.4f}" in lines[4]
