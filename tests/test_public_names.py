"""The package's front door."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import unle

DOCS = Path(__file__).parents[1] / "docs"
PUBLIC = sorted(set(unle.__all__) - {"__version__"})


def test_every_public_name_is_there():
    for name in unle.__all__:
        assert getattr(unle, name) is not None


def test_the_function_simulate_and_its_room_have_different_names():
    import unle.simulators

    assert unle.simulate is unle.simulators.simulate
    assert callable(unle.simulate)


def test_importing_the_package_does_not_import_jax():
    code = "import sys, unle; unle.simulate; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_there_are_at_most_thirty_public_names():
    assert len(PUBLIC) <= 30


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_an_example_and_a_place_in_the_docs(name):
    """Examples are run by test_docstrings.py."""
    assert ">>> " in (getattr(unle, name).__doc__ or "")
    assert re.search(rf"\b{name}\b", (DOCS / "api.md").read_text(encoding="utf-8"))


def test_rooms_are_there_after_one_import():
    rooms = sorted(set(dir(unle)) - set(unle.__all__))
    assert {"diagnose", "plot", "samplers", "train"} <= set(rooms)
    code = "import unle; " + "; ".join(f"assert unle.{room}.__doc__" for room in rooms)
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
