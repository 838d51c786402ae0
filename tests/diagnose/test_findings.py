"""The room imports nothing heavy; files of earlier versions are read."""

import subprocess
import sys

import numpy as np
import pytest

import unle.diagnose
from unle.diagnose import Check, Findings


@pytest.mark.parametrize("room", ["unle.diagnose", "unle.plot"])
def test_importing_a_room_is_light(room):
    heavy = ("jax", "matplotlib", "sklearn", "scipy")
    code = f"import sys, {room}; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_every_name_is_where_the_room_says():
    assert all(callable(getattr(unle.diagnose, name)) or name == "CHECKS" for name in unle.diagnose.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        unle.diagnose.nothing  # noqa: B018


def test_checks_under_former_names_are_read_under_their_own(tmp_path):
    old = Check("cloud", "x_o among the simulations", "?", "good", {"p": 0.5}, "Fine.", {"distances": np.arange(3.0)})
    Findings((old,), (), "2024-01-01T00:00:00+00:00", 1.0).save(tmp_path / "checks")
    (check,) = Findings.load(tmp_path / "checks").checks
    assert check.name == "outlier"
    np.testing.assert_array_equal(check.arrays["distances"], np.arange(3.0))
