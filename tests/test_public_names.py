"""The package's front door."""

import subprocess
import sys

import unle


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
