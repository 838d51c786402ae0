"""Every file of scripts/ and examples/ can be imported: a name of the library that was changed is found here."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted(path for folder in ("scripts", "examples") for path in (ROOT / folder).glob("*.py"))
ELSEWHERE = {"nbformat", "nbclient"}  # of the extra `docs`


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


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_it_can_be_imported(path, monkeypatch):
    try:
        module = imported(path, monkeypatch)
    except ModuleNotFoundError as error:
        if error.name not in ELSEWHERE:
            raise
        pytest.skip(f"needs {error.name}")
    assert module.__doc__


def test_a_name_that_is_no_longer_there_is_found(tmp_path, monkeypatch):
    """Companion; `paper_variants.py` once stood for weeks with such a line."""
    assert len(FILES) > 20
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
