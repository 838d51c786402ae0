"""The command line: what it writes, what it does not do twice, and the one sentence when it cannot.

Compilation is most of the time: one small run is made once, and everything else has the same shapes, names and
data. That is why the user's model below is Two Moons in disguise.
"""

import json
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from unle.cli import app
from unle.cli.settings import RunSettings
from unle.posterior import Draws, Posterior
from unle.simulators import simulate
from unle.store import RunDirectory
from unle_bench import task

SMALL = ["--budget", "64", "--members", "1", "--iterations", "50", "--draws", "400", "--no-report"]
MODEL = """
from pathlib import Path
import unle

HERE = Path(__file__).parent
task = unle.task("two_moons")
prior = unle.Prior.uniform(low=[-1.0, -1.0], high=[1.0, 1.0])

def simulator(theta, rng):
    calls = HERE / "calls.txt"
    done = calls.stat().st_size if calls.exists() else 0
    if (HERE / "stop").exists() and done == 40:
        raise KeyboardInterrupt
    with open(calls, "a") as file:
        file.write(".")
    return task.simulator(theta, rng)
"""


def unle(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def one_sentence(result) -> str:
    """Return the error, after checking that it is one line, without a traceback, with a bad exit status."""
    assert result.exit_code == 1, result.output
    assert isinstance(result.exception, SystemExit)
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert "Traceback" not in result.output
    return line


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """One run of a user's model: interrupted in the middle of its simulations, then finished."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "model.py").write_text(MODEL + "\nx_o = [-0.3, -0.2]\n")
    (folder / "stop").touch()
    command = ["run", folder / "model.py", *SMALL, "--out", folder / "mine"]
    interrupted = unle(*command)
    (folder / "stop").unlink()
    return SimpleNamespace(
        folder=folder,
        out=folder / "mine",
        command=command,
        interrupted=interrupted,
        result=unle(*command),
        calls=lambda: (folder / "calls.txt").stat().st_size,
    )


def test_an_interrupted_run_says_what_is_saved(finished):
    assert finished.interrupted.exit_code == 130
    assert "stopped; 40 simulations are saved" in finished.interrupted.stderr


def test_a_run_leaves_everything_in_its_directory(finished):
    assert finished.result.exit_code == 0, finished.result.output
    run = RunDirectory.open(finished.out)
    assert run.settings["budget"] == 64
    assert run.settings["x_o"] == [[-0.3, -0.2]]
    assert (finished.out / "rounds/00/likelihood.npz").exists()
    draws = Draws.load(run.draws)
    assert draws.names == ("theta_1", "theta_2")
    assert len(draws) >= 400
    stages = {record["stage"] for record in run.read_metrics()}
    assert stages - {"certificate"} == {"stopped", "training", "information", "fitted", "seconds"}  # interrupted once


def test_a_run_prints_a_row_for_each_parameter(finished):
    lines = [line.split() for line in finished.result.stdout.splitlines()]
    (row,) = [line for line in lines if line[:1] == ["theta_1"]]
    draws = np.asarray(Draws.load(finished.out / "draws.nc"))
    assert float(row[1]) == pytest.approx(draws[:, 0].mean(), rel=1e-3)
    assert "R-hat" in finished.result.stdout
    assert "sample" in finished.result.stdout


def test_the_interrupted_run_ends_as_if_nothing_had_happened(finished):
    assert finished.calls() == 64  # 40 before, 24 after: none twice
    moons = task("two_moons")
    whole = simulate(moons.simulator, moons.prior, 64, seed=0)
    with RunDirectory.open(finished.out).simulations() as store:
        rows = store.read()
    np.testing.assert_array_equal(rows.theta, whole.theta)
    np.testing.assert_array_equal(rows.x, whole.x)


def test_the_same_command_again_repeats_nothing(finished):
    before = (finished.out / "draws.nc").stat().st_mtime_ns
    calls = finished.calls()
    result = unle(*finished.command, "--json")
    assert result.exit_code == 0
    assert "nothing was repeated" in result.stderr
    assert json.loads(result.stdout)["repeated"] is False
    assert finished.calls() == calls
    assert (finished.out / "draws.nc").stat().st_mtime_ns == before


def test_a_run_that_was_killed_while_it_was_checked_makes_its_checks(finished, monkeypatch, tmp_path):
    copy, checked = tmp_path / "copy", []
    command = ("resume", copy, finished.folder / "model.py")
    shutil.copytree(finished.out, copy)
    monkeypatch.setattr("unle.cli.run.report_after", lambda run, model, stages: checked.append(run.path))
    assert "its checks are still to be made" in unle(*command).stderr
    assert checked == [copy]
    (copy / "report.html").write_text("a report")
    assert "its checks are still to be made" in unle(*command).stderr  # of checks that are not there
    monkeypatch.setattr("unle.cli.run.findings_kept", lambda run: None)
    (copy / "checks.json").write_text("{}")
    assert "complete; nothing was repeated" in unle(*command).stderr
    assert len(checked) == 2
    os.utime(copy / "draws.nc")  # drawn anew, after a larger budget
    assert "its checks are still to be made" in unle(*command).stderr
    assert "complete; nothing was repeated" in unle(*command, "--no-report").stderr


def test_simulations_are_reused_when_the_fit_is_missing(finished, tmp_path):
    """A run that died while training."""
    copy = tmp_path / "copy"
    shutil.copytree(finished.out, copy)
    shutil.rmtree(copy / "rounds")
    (copy / "draws.nc").unlink()
    calls = finished.calls()
    result = unle(*finished.command[:-1], copy)
    assert result.exit_code == 0, result.output
    assert finished.calls() == calls
    np.testing.assert_array_equal(Draws.load(copy / "draws.nc").values, Draws.load(finished.out / "draws.nc").values)


def test_a_run_that_died_while_sampling_is_resumed(finished, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(finished.out, copy)
    (copy / "draws.nc").unlink()
    result = unle("resume", copy, finished.folder / "model.py", "--json", "--no-report")
    assert result.exit_code == 0, result.output
    assert set(json.loads(result.stdout)["seconds"]) == {"sample"}
    np.testing.assert_array_equal(Draws.load(copy / "draws.nc").values, Draws.load(finished.out / "draws.nc").values)


def test_simulations_made_elsewhere_are_used(finished, tmp_path):
    assert unle("export", finished.out, tmp_path / "sims.npz").exit_code == 0
    calls = finished.calls()
    command = [*finished.command[:-1], tmp_path / "brought", "--simulations", tmp_path / "sims.npz"]
    result = unle(*command)
    assert result.exit_code == 0, result.output
    assert finished.calls() == calls
    draws = Draws.load(tmp_path / "brought/draws.nc")
    np.testing.assert_array_equal(draws.values, Draws.load(finished.out / "draws.nc").values)
    assert unle("resume", tmp_path / "brought", "--no-report").exit_code == 0
    other = np.load(tmp_path / "sims.npz")
    np.savez(tmp_path / "sims.npz", theta=other["theta"], x=other["x"] + 1)
    assert "simulations_sha256 was" in one_sentence(unle(*command))


def test_a_damaged_fit_is_refused(finished, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(finished.out, copy)
    content = bytearray((copy / "rounds/00/likelihood.npz").read_bytes())
    content[len(content) // 2] ^= 1
    (copy / "rounds/00/likelihood.npz").write_bytes(content)
    (tmp_path / "x.json").write_text("[0.0, 0.0]")
    assert "check sum does not fit" in one_sentence(unle("resume", copy, finished.folder / "model.py"))
    assert "check sum does not fit" in one_sentence(unle("sample", copy, "--observation", tmp_path / "x.json"))


def test_other_settings_are_refused_by_name(finished):
    sentence = one_sentence(unle(*finished.command, "--budget", "63"))
    assert "budget was 64 and is now 63" in sentence


def test_a_changed_model_is_refused(finished):
    text = (finished.folder / "model.py").read_text()
    (finished.folder / "changed").mkdir()
    (finished.folder / "changed" / "model.py").write_text(text + "# changed\n")
    command = ["run", finished.folder / "changed" / "model.py", *finished.command[2:]]
    assert "model_sha256 was" in one_sentence(unle(*command))


def test_another_observation_is_pointed_to_sample(finished, tmp_path):
    (tmp_path / "x.json").write_text("[0.1, 0.1]")
    sentence = one_sentence(unle(*finished.command, "--observation", tmp_path / "x.json"))
    assert "unle sample" in sentence


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.csv", "first,second\n-0.5,0.5\n"),
        ("x.txt", "-0.5\n0.5\n"),
        ("x.json", '{"x_o": [-0.5, 0.5]}'),
        ("x.npy", None),
    ],
)
def test_a_new_observation_is_sampled_without_training(finished, tmp_path, name, content):
    file = tmp_path / name
    if content is None:
        np.save(file, np.array([-0.5, 0.5]))
    else:
        file.write_text(content)
    calls = finished.calls()
    result = unle("sample", finished.out, "--observation", file, "-n", 400, "--out", tmp_path / "d.nc", "--json")
    assert result.exit_code == 0, result.output
    draws = Draws.load(tmp_path / "d.nc")
    np.testing.assert_array_equal(draws.x_o, [[-0.5, 0.5]])
    assert json.loads(result.stdout)["summary"]["theta_1"]["mean"] == pytest.approx(
        np.asarray(draws)[:, 0].mean(), rel=1e-5
    )
    assert finished.calls() == calls


@pytest.mark.parametrize("how", ["a parameter is held", "an entry is missing"])
def test_sampling_with_less_than_everything(finished, tmp_path, how):
    file, out = tmp_path / "x.json", tmp_path / "d.nc"
    file.write_text("[-0.5, 0.5]" if how == "a parameter is held" else "[-0.5, null]")
    options = ["--condition", "theta_1=-0.4"] if how == "a parameter is held" else []
    command = ["sample", finished.out, "--observation", file, "-n", 400, "--out", out, *options]
    if how == "an entry is missing" and "NoEnergy" not in repr(Posterior.load(finished.out / "rounds/00/likelihood")):
        assert "expected a complete x_o" in one_sentence(unle(*command))
        return
    result = unle(*command)
    assert result.exit_code == 0, result.output
    held = how == "a parameter is held"
    assert ("Given theta_1 = -0.4." in result.stdout) == held
    assert Draws.load(out).names == (("theta_2",) if held else ("theta_1", "theta_2"))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("theta_1", "expected --condition as NAME=VALUE, such as beta=0.4; got 'theta_1'"),
        ("beta=1", "expected a condition on the parameters theta_1, theta_2; got 'beta'"),
        ("theta_1=9", "expected a value of theta_1 inside the prior"),
    ],
)
def test_conditions_that_cannot_be_met(finished, tmp_path, text, sentence):
    (tmp_path / "x.json").write_text("[-0.5, 0.5]")
    command = ["sample", finished.out, "--observation", tmp_path / "x.json", "--out", tmp_path / "d.nc"]
    assert sentence in one_sentence(unle(*command, "--condition", text))


def test_sampling_never_overwrites(finished, tmp_path):
    (tmp_path / "x.json").write_text("[0.0, 0.0]")
    command = ["sample", finished.out, "--observation", tmp_path / "x.json", "-n", 400]
    assert unle(*command).exit_code == 0
    assert unle(*command).exit_code == 0
    assert {path.name for path in finished.out.glob("draws*.nc")} >= {"draws.nc", "draws_1.nc", "draws_2.nc"}
    sentence = one_sentence(unle(*command, "--out", finished.out / "draws.nc"))
    assert "not overwritten" in sentence


def test_an_unusual_observation_is_warned_about_in_one_line(finished, tmp_path):
    (tmp_path / "x.json").write_text("[5.0, 0.0]")
    result = unle("sample", finished.out, "--observation", tmp_path / "x.json", "-n", 400, "--out", tmp_path / "d.nc")
    assert result.exit_code == 0, result.output
    assert [line for line in result.stderr.splitlines() if line.startswith("warning: ")]
    assert "UnleWarning" not in result.stderr


def test_without_an_observation_the_fit_is_saved(finished, tmp_path):
    (tmp_path / "free.py").write_text(MODEL)
    result = unle("run", tmp_path / "free.py", *SMALL, "--out", tmp_path / "free")
    assert result.exit_code == 0, result.output
    assert f"unle sample {tmp_path / 'free'} --observation FILE" in result.stdout
    assert (tmp_path / "free/rounds/00/likelihood.json").exists()
    assert not (tmp_path / "free/draws.nc").exists()


def test_a_simulator_that_always_fails_shows_its_traceback(tmp_path):
    (tmp_path / "model.py").write_text(
        "import unle\nprior = unle.Prior.normal([0.0], [1.0])\ndef simulator(theta, rng): raise OSError('no')"
    )
    result = unle("run", tmp_path / "model.py", *SMALL, "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert "line 3, in simulator" in result.stderr
    (sentence,) = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert "no" in sentence


def test_a_task_is_checked_against_its_exact_posterior(tmp_path):
    result = unle("run", "two_moons", *SMALL, "--observation", 1, "--check", "--json", "--out", tmp_path / "moons")
    assert result.exit_code == 0, result.output
    content = json.loads(result.stdout)
    assert 0.4 < content["c2st"] <= 1.0
    assert set(content["seconds"]) == {"simulate", "fit", "sample", "exact"}


def test_the_demo_writes_a_figure_and_never_into_an_old_directory(tmp_path, monkeypatch):
    monkeypatch.setattr("unle.cli.demo.RunSettings", partial(RunSettings, iterations=50, members=1))
    monkeypatch.setattr("unle.cli.demo.BUDGET", 64)
    monkeypatch.setattr("unle.cli.demo.DRAWS", 400)
    monkeypatch.setattr("unle.diagnose.sampler_checks.POINTS", 41)
    monkeypatch.setattr("unle.diagnose.sampler_checks.CHUNK", 500)
    (tmp_path / "demo").mkdir()
    result = unle("demo", "--out", tmp_path / "demo")
    assert result.exit_code == 0, result.output
    assert "C2ST against" in result.stdout
    assert "unle.AUNLE(task.prior).fit(" in result.stdout
    assert (tmp_path / "demo-2/two_moons.png").stat().st_size > 10_000
    assert not list((tmp_path / "demo").iterdir())


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("simulator = None", "does not define `prior`"),
        ("prior = None", "does not define `simulator`"),
        ("import numpyro.distributions as dist\nprior = dist.Normal(0.0, 1.0)\nsimulator = 3", "to be a function"),
        ("prior = 1\n\nsimulator = 1 / 0", "ZeroDivisionError: division by zero (line 3)"),
        ("prior = (", "SyntaxError"),
    ],
)
def test_a_broken_model_gives_one_sentence(tmp_path, text, complaint):
    (tmp_path / "model.py").write_text(text)
    sentence = one_sentence(unle("run", tmp_path / "model.py", *SMALL, "--out", tmp_path / "out"))
    assert complaint in sentence


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("x.json", "[1.0, 2.0, 3.0]", "length 2"),
        ("x.json", "{}", "`x_o`"),
        ("x.json", "[1.0,", "could not be read as numbers"),
        ("x.csv", "1.0,inf\n", "finite"),
        ("x.csv", "1.0,2.0\n3.0\n", "rows of one length"),
        ("x.txt", "one two\n", "could not be read as numbers"),
        ("x.npy", "not an array", "could not be read as numbers"),
        ("x.pickle", "", ".csv, .txt, .npy or .json"),
        (None, None, "there is no file"),
    ],
)
def test_a_wrong_observation_gives_one_sentence(finished, tmp_path, name, content, complaint):
    file = tmp_path / (name or "missing.csv")
    if name:
        file.write_text(content)
    assert complaint in one_sentence(unle("sample", finished.out, "--observation", file))


def test_an_observation_of_another_length_is_refused_before_training(finished, tmp_path):
    (tmp_path / "x.json").write_text("[1.0, 2.0, 3.0]")
    (tmp_path / "model.py").write_text(MODEL)
    command = ["run", tmp_path / "model.py", *SMALL, "--observation", tmp_path / "x.json", "--out", tmp_path / "out"]
    assert "length 2, as the simulations; got 3" in one_sentence(unle(*command))
    assert not (tmp_path / "out/rounds/00/likelihood.json").exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["run", "two_mons"], "did you mean two_moons?"),
        (["run", "missing.py"], "there is no file missing.py in "),
        (["run", "two_moons", "--method", "magic"], "among aunle"),
        (["run", "two_moons", "--observation", "11"], "from 1 to 10"),
        (["run", "two_moons", "--check"], "--observation 1"),
        (["sample", "nowhere", "--observation", "1"], "holds no run"),
    ],
)
def test_a_wrong_command_gives_one_sentence(tmp_path, monkeypatch, arguments, complaint):
    monkeypatch.chdir(tmp_path)
    assert complaint in one_sentence(unle(*arguments))
    assert not list(tmp_path.iterdir())


def test_a_number_needs_a_task(finished):
    assert "only built-in tasks" in one_sentence(unle("sample", finished.out, "--observation", 1))


def test_tasks_are_listed():
    result = unle("tasks", "--json")
    tasks = {record["name"]: record for record in json.loads(result.stdout)}
    assert tasks["slcp"]["dim_x"] == 8
    assert tasks["two_moons"]["prior"] == "Uniform(low -1, high 1)"
    assert "two_moons" in unle("tasks").stdout


@pytest.mark.parametrize("command", ["run", "sample", "tasks", "demo", "check", "report", "watch"])
def test_every_command_has_help_with_an_example(command):
    result = unle(command, "--help")
    assert result.exit_code == 0
    assert f"Example:  unle {command}" in result.stdout


def test_help_does_not_wait_for_the_heavy_libraries():
    code = "import sys, unle.cli; print([m for m in ('jax', 'matplotlib', 'sklearn') if m in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "src")}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert result.stdout.strip() == "[]"
