"""`unle run --method sunle`: rounds in a run directory."""

import numpy as np
import pytest
from typer.testing import CliRunner

from unle.cli import app
from unle.posterior import Draws
from unle.store import read_sealed, write_sealed

SETTINGS = ["--method", "sunle", "--budget", "120", "--rounds", "2", "--members", "2", "--iterations", "50"]
ENDING = ["--draws", "400", "--observation", "1", "--no-report"]


def unle(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_rounds_need_an_observation_and_belong_to_sunle(tmp_path):
    result = unle("run", "bimodal", *SETTINGS, "--out", tmp_path / "run")
    assert result.exit_code != 0
    assert "expected an observation" in result.output
    result = unle("run", "bimodal", "--rounds", 3, "--observation", 1, "--out", tmp_path / "run")
    assert result.exit_code != 0
    assert "--method sunle or snle only" in result.output
    result = unle("run", "bimodal", *SETTINGS, *ENDING, "--normaliser", "guess", "--out", tmp_path / "run")
    assert result.exit_code != 0
    assert "divi, online, exchange" in result.output


def test_rounds_may_have_sizes_of_their_own(tmp_path):
    given = ["--method", "sunle", "--observation", 1, "--out", tmp_path / "run"]
    result = unle("run", "bimodal", *given, "--rounds", "60,some")
    assert result.exit_code == 1
    assert "500,250,250" in result.output
    result = unle("run", "bimodal", *given, "--rounds", "60,40", "--budget", 120)
    assert result.exit_code == 1
    assert "add up to the budget of 120" in result.output


@pytest.mark.slow
def test_a_run_keeps_its_rounds_and_goes_on_where_it_stopped(tmp_path):
    out = tmp_path / "run"
    result = unle("run", "bimodal", *SETTINGS, *ENDING, "--out", out)
    assert result.exit_code == 0, result.output
    assert "round 2 of 2" in result.output
    assert (out / "rounds" / "00" / "proposals.npy").exists()
    assert (out / "rounds" / "01" / "likelihood.npz").exists()
    first = np.asarray(Draws.load(out / "draws.nc"))

    seals = read_sealed(out / "seals.json")
    unsealed = {stage: files for stage, files in seals.items() if stage not in ("fit", "draws")}
    write_sealed(out / "seals.json", unsealed)  # as after a kill in the last round's fit
    result = unle("resume", out)
    assert result.exit_code == 0, result.output
    assert "round 1 of 2" not in result.output  # taken from the directory
    np.testing.assert_array_equal(np.asarray(Draws.load(out / "draws.nc")), first)


def test_options_of_another_method_are_refused(tmp_path):
    for options, method in ((["--no-repetition"], "sunle"), (["--proposals", "bases"], "aunle")):
        command = ["run", "two_moons", "--observation", "1", "--method", method, *options]
        command += ["--out", str(tmp_path / "run")]
        result = CliRunner().invoke(app, command)
        assert result.exit_code != 0
        assert f"expected {options[0].replace('no-', '')} with --method" in result.output
