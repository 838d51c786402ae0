"""What the command line says: first lines, totals, tracebacks of a simulator, warnings and verdicts."""

import subprocess
import sys
import time

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from unle.cli import app, console
from unle.cli.check import show_findings, show_verdict
from unle.cli.observation import read_observation
from unle.cli.output import say_complaints
from unle.cli.settings import whole_number
from unle.diagnose import Check, Findings
from unle.errors import InputError


def unle(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


FAILING = """
import unle
prior = unle.Prior.uniform(low=[-1.0], high=[1.0])
def simulator(theta, rng):
    if theta[0] > {least}:
        raise ValueError("too hot")
    return theta
"""


def test_a_simulator_that_always_fails_shows_its_traceback(tmp_path):
    model = tmp_path / "model.py"
    model.write_text(FAILING.format(least=-2))
    result = unle("run", model, "--budget", 100, "--out", tmp_path / "run")
    assert result.exit_code == 1
    assert "error: expected some valid simulations; got none among the first 100" in result.stderr
    assert f'File "{model}", line 6, in simulator' in result.stderr
    assert result.stderr.count("ValueError: too hot") == 2  # in the sentence and in the traceback


def test_a_simulator_that_sometimes_fails_shows_its_first_traceback(tmp_path):
    model = tmp_path / "model.py"
    model.write_text(FAILING.format(least=0.5))
    result = unle("simulate", model, "--budget", 100, "--out", tmp_path / "run")
    assert result.exit_code == 0, result.output
    assert "invalid" in result.stdout
    assert result.stderr.count("Traceback") == 1
    assert f'File "{model}", line 6, in simulator' in result.stderr


def test_warnings_of_many_parameters_are_one_line(capsys):
    good, bad = ({"r_hat": value} for value in (1.0, 1.2))
    say_complaints({"a": good})
    assert capsys.readouterr().err == ""
    say_complaints({"a": good, "b": bad, "c": {"r_hat": 1.5}, "d": bad})
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: R-hat of c is 1.50, and of 2 other parameters above 1.05: ")


LONG_RUN = """
import unle
prior = unle.Prior.uniform(low=[-1.0], high=[1.0])
calls = []
def simulator(theta, rng):
    calls.append(1)
    assert len(calls) < 200, "should have been stopped"
    return [theta[0], 1.0, 2.0]
"""


@pytest.mark.parametrize("method", ["aunle", "sunle"])
def test_an_observation_of_another_length_is_noticed_with_the_first_simulations(tmp_path, method):
    model, x_o = tmp_path / "model.py", tmp_path / "x_o.csv"
    model.write_text(LONG_RUN)
    x_o.write_text("1.0,2.0\n")
    given = ["--budget", 20_000, "--observation", x_o, "--method", method, "--out", tmp_path / "run"]
    result = unle("run", model, *given)
    assert result.exit_code == 1
    assert "expected an observation of length 3, as the simulations; got 2" in result.stderr
    assert "should have been stopped" not in result.stderr


def test_one_row_with_a_word_in_it_is_no_header(tmp_path):
    path = tmp_path / "x_o.csv"
    path.write_text("12,6,x\n")
    with pytest.raises(InputError, match="could not be read as numbers: .*'x'"):
        read_observation(str(path), None)
    path.write_text("a,b,c\n12,6,7\n")
    assert read_observation(str(path), None).names == ("a", "b", "c")


@pytest.mark.parametrize(
    "command",
    [
        ["run", "two_moons", "--observation", "gone.csv"],
        ["run", "two_moons", "--simulations", "gone.npz"],
        ["sample", "runs/moons", "--observation", "gone.csv"],
        ["import", "runs/new", "gone.npz"],
    ],
    ids=["observation", "simulations", "new observation", "import"],
)
def test_a_file_that_is_not_there_is_refused_before_anything_is_loaded(command, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for module in ("run", "sample"):
        monkeypatch.setattr(f"unle.cli.{module}.progress", lambda title: pytest.fail(f"{title} came first"))
    result = unle(*command)
    assert result.exit_code == 1
    assert "there is no file gone." in result.stderr
    assert not list(tmp_path.iterdir())


def test_a_full_path_that_is_not_there_is_not_said_to_be_in_this_folder(tmp_path):
    result = unle("run", "two_moons", "--observation", str(tmp_path / "gone.csv"))
    assert result.stderr.strip().endswith(f"there is no file {tmp_path / 'gone.csv'}.")


def test_missing_entries_are_for_sample(tmp_path):
    (tmp_path / "x.csv").write_text("1.0,nan\n")
    with pytest.raises(InputError, match="got NaN or inf; a fit without an observation takes missing .* unle sample"):
        read_observation(str(tmp_path / "x.csv"), None)


def test_an_empty_cell_is_a_missing_number(tmp_path):
    path = tmp_path / "x_o.csv"
    path.write_text("a,b,c\n1.5,,3\n")
    found = read_observation(str(path), None, gaps=True)
    np.testing.assert_array_equal(found.rows, [[1.5, np.nan, 3.0]])
    with pytest.raises(InputError, match="finite numbers"):
        read_observation(str(path), None)
    path.write_text("1,2,3,\n4,5,6,\n")  # commas at the end of every line
    assert read_observation(str(path), None).rows.shape == (2, 3)
    path.write_text("1, 2; 3\n")
    assert read_observation(str(path), None).rows.tolist() == [[1, 2, 3]]
    path.write_text("1 2 3\n")
    assert read_observation(str(path), None).rows.tolist() == [[1, 2, 3]]


def test_some_checks_alone_give_no_verdict_on_the_run(capsys):
    check = Check("outlier", "Is x_o like the simulations?", "?", "good", {}, "Fine.")
    findings = Findings((check,), (), "2030", 3.0)
    show_findings(findings, "runs/m", whole=False)
    assert "verdict: " not in capsys.readouterr().out
    show_findings(findings, "runs/m")
    assert "verdict: good (1 check: 1 good" in capsys.readouterr().out


def test_a_verdict_comes_with_its_reasons(capsys):
    check = Check("coverage", "Expected coverage", "?", "bad", {}, "The posterior is too narrow: do this.")
    show_verdict(Findings((check,), (), "2030", 3.0), "runs/m")
    first, reason = capsys.readouterr().err.splitlines()
    assert first.startswith("verdict: bad (1 check: ")
    assert reason == "  bad: Expected coverage. The posterior is too narrow: do this."


def test_the_total_is_the_wall_clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    monkeypatch.setitem(console.CLOCK, "start", 90.0)
    stages = console.Stages()
    with stages.stage("fit"):
        now[0] += 5
    now[0] += 2  # of which no stage knows
    assert stages.line() == "load 10.0 s, fit 5.0 s, in all 17.0 s"


def test_the_clock_starts_with_the_process():
    program = "import time; time.sleep(1); from unle.cli import console; console.start_clock(); "
    program += "print(time.perf_counter() - console.CLOCK['start'])"
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert 1.0 <= float(done.stdout) <= time.perf_counter() - start + 0.02


def test_the_first_line_needs_no_heavy_import():
    program = """
import builtins, sys
from unle.cli.entry import app
import unle.progress
def tell(sentence):
    print(sentence, [name for name in ("jax", "numpy", "scipy") if name in sys.modules])
    sys.exit(7)
import unle.cli.run
unle.cli.run.tell = tell
app(["run", "model.py", "--out", "runs/m"])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "model.py: results go to runs/m []\n"
    assert done.returncode == 7


@pytest.mark.parametrize("header", [",dose,deaths", '"","dose","deaths"'])
def test_numbers_of_rows_that_pandas_and_r_write_are_left_out(tmp_path, header):
    path = tmp_path / "x_o.csv"
    path.write_text(f"{header}\n1,1.5,2\n2,2.5,4\n")
    observation = read_observation(str(path), None)
    assert observation.names == ("dose", "deaths")
    assert observation.rows.tolist() == [[1.5, 2.0], [2.5, 4.0]]


def test_numbers_of_simulations_may_be_written_in_short():
    assert [whole_number(text) for text in ("1e3", "10_000", "250", 7)] == [1000, 10_000, 250, 7]
    for text in ("0", "1.5", "many", "inf", "nan", "-3"):
        with pytest.raises(typer.BadParameter, match="expected a whole number of 1 or more; got"):
            whole_number(text)
