"""The scripts: each starts, and says what it does when it is asked; those that the pages name exist."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import unle

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted([*(ROOT / "scripts").glob("*.py"), *(ROOT / "examples").glob("*.py")])
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.ipynb")])
# Others import these; and the example of a method has no options, and runs as a whole in its own test.
PARTS = ("paper_variants", "versus", "linear_gaussian")


def missing(text: str) -> list[str]:
    """Return the scripts that a page names and that are not there."""
    return [name for name in re.findall(r"\b(?:scripts|examples)/\w+\.py", text) if not (ROOT / name).is_file()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_scripts_that_pages_name_exist(page):
    assert missing(page.read_text(encoding="utf-8")) == []


def test_a_script_that_is_gone_is_caught():
    assert missing("python scripts/nothing.py --seed 1") == ["scripts/nothing.py"]


@pytest.mark.slow
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_starts_and_says_what_it_does(path, tmp_path):
    words = ["-c", f"import {path.stem}"] if path.stem in PARTS else [str(path), "--help"]
    environment = os.environ | {"PYTHONPATH": str(path.parent)}
    done = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert path.stem in PARTS or done.stdout.startswith("usage: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("without", [{"transforms": False, "gate": False, "repetition": False}, {"gate": False}, {}])
def test_the_default_without_some_of_its_parts_fits(monkeypatch, without):
    """Variants of the paper's algorithm use parts of AUNLE that are not public, and must be told when these change."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    variants = importlib.import_module("paper_variants")
    particles = unle.train.PersistentChains(n=200, moves=5, kernel=unle.samplers.Mala(), at_data=False, fresh=False)
    method = variants.Ablated(
        unle.Prior.uniform(low=[-1.0], high=[1.0], names=["a"]),
        base=unle.train.GaussianTraining(width=8, depth=1, iterations=100, batch=64, chunk=50),
        training=unle.train.EnergyTraining(particles, width=8, depth=1, iterations=100, batch=64, chunk=50),
        members=1,
        autoregressive=False,
        **without,
    )
    simulator = unle.batched(lambda theta, rng: theta + 0.3 * rng.normal(size=theta.shape))
    simulations = unle.simulate(simulator, method.prior, 300, seed=0)
    draws = method.fit(simulations, seed=1).sample([0.1], 500, seed=2)
    assert abs(draws["a"].mean() - 0.1) < 0.3
