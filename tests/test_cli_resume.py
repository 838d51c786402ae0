"""`unle simulate`, `resume`, `export` and `import`: what was begun goes on, and what was made elsewhere comes in."""

import json
import shutil
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from unle.cli import app
from unle.simulators import Simulations
from unle.store import RunDirectory

MODEL = """
from pathlib import Path
import numpy as np
import unle

HERE = Path(__file__).parent
prior = unle.Prior.uniform(low=[0.0, 0.0], high=[1.0, 1.0], names=["rate", "delay"])

def simulator(theta, rng):
    calls = HERE / "calls.txt"
    with open(calls, "a") as file:
        file.write(".")
    if (HERE / "stop").exists() and calls.stat().st_size == 30:
        raise KeyboardInterrupt
    if theta[0] > 0.9:
        raise ValueError("too fast")
    return {"sum": theta.sum() + rng.normal(), "pair": theta}
"""


def unle(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def one_sentence(result) -> str:
    assert result.exit_code == 1, result.output
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert "Traceback" not in result.output
    return line


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    return tmp_path


def calls(folder):
    return (folder / "calls.txt").stat().st_size


def test_simulating_is_interrupted_resumed_and_exported(folder):
    out = folder / "sims"
    (folder / "stop").touch()
    stopped = unle("simulate", folder / "model.py", "--budget", 100, "--out", out)
    assert stopped.exit_code == 130
    assert f"29 simulations are saved in {out}; to go on: unle resume {out}" in stopped.stderr
    (folder / "stop").unlink()
    result = unle("resume", out)
    assert result.exit_code == 0, result.output
    assert calls(folder) == 101  # the interrupted one is done again, and no other
    assert "x: sum, pair[0], pair[1]" in result.stdout
    assert f"unle run {folder / 'model.py'} --simulations {out}" in result.stdout
    assert "ValueError" in result.stdout
    whole = json.loads(
        unle("simulate", folder / "model.py", "--out", folder / "whole", "--budget", 100, "--json").stdout
    )
    assert whole["simulations"] == 100
    assert Simulations.load(out).digest() == Simulations.load(folder / "whole").digest()

    assert unle("export", out, folder / "all.csv").exit_code == 0
    header = (folder / "all.csv").read_text().split("\n")[0]
    assert header == "theta.rate,theta.delay,x.sum,x.pair[0],x.pair[1],valid,reason,seconds"
    assert "not overwritten" in one_sentence(unle("export", out, folder / "all.csv"))
    assert unle("import", folder / "brought", folder / "all.csv").exit_code == 0
    brought = Simulations.load(folder / "brought")
    np.testing.assert_array_equal(brought.x, Simulations.load(out).x)
    assert brought.reasons == Simulations.load(out).reasons


def test_a_model_file_runs_in_processes(folder):
    result = unle(
        "simulate", folder / "model.py", "--out", folder / "two", "--budget", 60, "--workers", 2, "--timeout", 20
    )
    assert result.exit_code == 0, result.output
    assert calls(folder) == 60
    unle("simulate", folder / "model.py", "--out", folder / "one", "--budget", 60)
    assert Simulations.load(folder / "one").digest() == Simulations.load(folder / "two").digest()


def test_a_dry_run_stores_nothing(folder):
    result = unle("simulate", folder / "model.py", "--budget", 1_000_000, "--dry-run")
    assert result.exit_code == 0, result.output
    assert "x: 3 numbers (sum, pair[0], pair[1])" in result.stdout
    assert "for 1,000,000 simulations" in result.stdout
    assert {path.name for path in folder.iterdir()} <= {"model.py", "calls.txt", "__pycache__"}
    assert json.loads(unle("simulate", folder / "model.py", "--dry-run", "--json").stdout)["dim_x"] == 3


# --- refusals


@pytest.fixture
def begun(folder):
    assert unle("simulate", folder / "model.py", "--budget", 5, "--out", folder / "run").exit_code == 0
    return folder / "run"


def test_a_changed_model_is_not_run(folder, begun):
    (folder / "model.py").write_text("raise SystemExit('this must not run')")
    assert "has changed since this run began" in one_sentence(unle("resume", begun))


def test_a_directory_from_elsewhere_does_not_say_which_file_to_run(folder, begun, monkeypatch):
    """Whoever hands over a directory must not decide what is executed."""
    monkeypatch.setenv("UNLE_STATE", str(folder / "another account"))
    assert "say which model: unle resume" in one_sentence(unle("resume", begun))
    assert unle("resume", begun, folder / "model.py").exit_code == 0


def test_a_moved_directory_needs_the_model(folder, begun):
    shutil.move(begun, folder / "moved")
    assert "say which model" in one_sentence(unle("resume", folder / "moved"))


def test_a_vanished_model_is_asked_for(folder, begun):
    (folder / "model.py").rename(folder / "elsewhere.py")
    assert "is gone; say where it is" in one_sentence(unle("resume", begun))
    assert unle("resume", begun, folder / "elsewhere.py").exit_code == 0


def test_a_directory_in_use_is_refused(folder, begun):
    with RunDirectory.open(begun).locked():
        assert "is in use by process" in one_sentence(unle("resume", begun))


def test_other_settings_are_refused(folder, begun):
    assert "budget was 5 and is now 4" in one_sentence(
        unle("simulate", folder / "model.py", "--budget", 4, "--out", begun)
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["resume", "nowhere"], "holds no run"),
        (["export", "nowhere", "a.csv"], "holds no run"),
        (["import", "new", "missing.npz"], "there is no file"),
        (["simulate", "two_moons", "--workers", "1", "--dask", "tcp://x"], "either --workers or --dask"),
        (["simulate", "two_moons", "--dask", "tcp://127.0.0.1:1"], "expected a Dask scheduler"),
    ],
)
def test_a_wrong_command_gives_one_sentence(tmp_path, monkeypatch, arguments, complaint):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.modules["unle.simulators.workers"], "SCHEDULER_TIMEOUT", "1s")
    assert complaint in one_sentence(unle(*arguments))


@pytest.mark.parametrize("command", ["simulate", "resume", "export", "import"])
def test_every_command_has_help_with_an_example(command):
    result = unle(command, "--help")
    assert result.exit_code == 0
    assert f"Example:  unle {command}" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--memory", "much"], "such as 500MB or 2GB; got 'much'"),
        (["--memory", "0"], "such as 500MB or 2GB; got '0'"),
        (["--memory", "1GB", "--method", "sunle", "--observation", "1"], "--memory with --method aunle, nle or smnle"),
    ],
)
def test_silly_amounts_of_memory(tmp_path, arguments, sentence):
    assert sentence in one_sentence(unle("run", "two_moons", "--out", tmp_path / "run", *arguments))
    assert not (tmp_path / "run").exists()
