"""The scripts: each starts, and says what it does when it is asked; those that the pages name exist."""

import importlib
import importlib.util
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
ELSEWHERE = {"nbformat", "nbclient"}  # of the extra `docs`


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


def imported(path, monkeypatch):
    """Return the module that a file is; what it needs from its own folder is found, as when it is run."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", [str(path.parent), *sys.path])
    spec = importlib.util.spec_from_file_location(f"{path.stem}_of_{path.parent.name}", path)
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    finally:
        for name in set(sys.modules) - before:  # such as `trust`, a neighbour: another test may have one of its own
            if getattr(sys.modules[name], "__file__", None) and Path(sys.modules[name].__file__).parent == path.parent:
                del sys.modules[name]
    return module


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_it_can_be_imported(path, monkeypatch):
    try:
        module = imported(path, monkeypatch)
    except ModuleNotFoundError as error:
        if error.name not in ELSEWHERE:
            raise
        pytest.skip(f"needs {error.name}")
    assert module.__doc__


def test_a_name_that_is_no_longer_there_is_found(tmp_path, monkeypatch):
    """Companion: a name of the library that was changed, and a room that was."""
    assert len(SCRIPTS) > 20
    (tmp_path / "stale.py").write_text('"""."""\nfrom unle.methods.paper import CHAINS\n')
    with pytest.raises(ImportError, match="CHAINS"):
        imported(tmp_path / "stale.py", monkeypatch)
    (tmp_path / "stale.py").write_text('"""."""\nimport unle.no_such_room\n')
    with pytest.raises(ModuleNotFoundError):
        test_it_can_be_imported(tmp_path / "stale.py", monkeypatch)


def test_every_variant_of_the_paper_can_be_made(monkeypatch):
    """`unle bench` makes a method when its turn comes: settings that were renamed would stop it half way."""
    from unle_bench import task
    from unle_bench.methods.method_adapter import Amortised

    module, moons = imported(ROOT / "scripts" / "paper_variants.py", monkeypatch), task("two_moons")
    for method in module.METHODS.values():
        made = method.build(moons) if isinstance(method, Amortised) else method.build(moons, moons.simulator)
        assert made.prior is moons.prior
    with pytest.raises(TypeError, match="no_such_setting"):
        module.changed(no_such_setting=1).build(moons)
