"""A larger budget for a run that is there: nothing is simulated twice, and nothing is lost."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from unle.cli import app
from unle.cli.top_up import FIRST_ROUNDS, create_or_top_up
from unle.errors import StoreError
from unle.posterior import Draws
from unle.simulators import Simulations
from unle.store import RunDirectory

MODEL = """
from pathlib import Path
import unle

HERE = Path(__file__).parent
prior = unle.Prior.uniform(low=[0.0], high=[1.0], names=["rate"])
x_o = [0.4, 0.5]

def simulator(theta, rng):
    calls = HERE / "calls.txt"
    with open(calls, "a") as file:
        file.write(".")
    if (HERE / "stop").exists() and calls.stat().st_size == 70:
        raise KeyboardInterrupt
    return theta + 0.1 * rng.normal(size=2)
"""
QUICK = ("--members", 1, "--iterations", 20, "--draws", 400, "--no-report")


def unle(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code in (0, 1, 130), result.output
    return result


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    return tmp_path


def calls(folder):
    return (folder / "calls.txt").stat().st_size


def test_simulations_are_added_to_those_that_are_there(folder):
    out = folder / "sims"
    for budget in (40, 90):
        result = unle("simulate", folder / "model.py", "--budget", budget, "--out", out)
        assert result.exit_code == 0, result.output
    assert "goes on from 40 to 90 simulations" in result.stderr
    assert calls(folder) == 90
    unle("simulate", folder / "model.py", "--budget", 90, "--out", folder / "whole")
    assert Simulations.load(out).digest() == Simulations.load(folder / "whole").digest()
    fewer = unle("simulate", folder / "model.py", "--budget", 40, "--out", out)
    assert "budget was 90 and is now 40" in fewer.stderr
    other = unle("simulate", folder / "model.py", "--budget", 200, "--seed", 1, "--out", out)
    assert "seed was 0 and is now 1" in other.stderr
    assert len(Simulations.load(out)) == 90


@pytest.mark.slow
def test_a_topped_up_run_is_interrupted_resumed_and_equal_to_the_one_made_at_once(folder):
    out, whole = folder / "run", folder / "whole"
    run = ("run", folder / "model.py", *QUICK)
    assert unle(*run, "--budget", 60, "--out", out).exit_code == 0
    before = np.asarray(Draws.load(out / "draws.nc"))
    (folder / "stop").touch()
    stopped = unle(*run, "--budget", 120, "--out", out)
    assert stopped.exit_code == 130
    assert f"69 simulations are saved in {out}" in stopped.stderr
    (folder / "stop").unlink()
    done = unle("resume", out, "--no-report")
    assert done.exit_code == 0, done.output
    assert calls(folder) == 121  # the interrupted one is done again, and no other
    assert RunDirectory.open(out).settings["budget"] == 120
    np.testing.assert_array_equal(Draws.load(out / "earlier" / "60" / "draws.nc"), before)
    assert (out / "earlier" / "60" / "rounds" / "00" / "likelihood.npz").exists()

    assert unle(*run, "--budget", 120, "--out", whole).exit_code == 0
    assert Simulations.load(out).digest() == Simulations.load(whole).digest()
    np.testing.assert_array_equal(Draws.load(out / "draws.nc"), Draws.load(whole / "draws.nc"))
    assert not np.array_equal(before, Draws.load(out / "draws.nc"))
    again = unle(*run, "--budget", 120, "--out", out)
    assert "holds this run already, complete" in again.stderr


@pytest.mark.slow
def test_a_sequential_run_keeps_its_rounds_and_adds_further_ones(folder):
    out = folder / "run"
    run = ("run", folder / "model.py", "--method", "sunle", *QUICK, "--out", out)
    assert unle(*run, "--budget", 100, "--rounds", 2).exit_code == 0
    first = Simulations.load(out)
    done = unle(*run, "--budget", 200)
    assert done.exit_code == 0, done.output
    assert "from 100 to 200 simulations in 2 further rounds" in done.stderr
    assert calls(folder) == 200
    np.testing.assert_array_equal(Simulations.load(out).x[:100], first.x)
    numbers = [record["number"] for record in RunDirectory.open(out).read_metrics() if record["stage"] == "round"]
    assert numbers == [0, 1, 2, 3]
    assert len(Draws.load(out / "draws.nc")) >= 400
    assert "holds this run already, complete" in unle(*run, "--budget", 200).stderr


# --- which settings continue which


def opened(path, **settings):
    return create_or_top_up(path, {"method": "sunle", "seed": 0, "model": "m.py", **settings}).settings


@pytest.mark.parametrize(
    ("first", "then", "sizes"),
    [
        ({"budget": 1000, "rounds": 10}, {"budget": 1500, "rounds": 10}, [100] * 15),
        ({"budget": 1000, "rounds": 10}, {"budget": 2000, "rounds": 20}, [100] * 20),
        ({"budget": 1000, "rounds": [600, 400]}, {"budget": 1900, "rounds": [600, 400]}, [600, 400, 450, 450]),
        ({"budget": 1000, "rounds": [600, 400]}, {"budget": 1500, "rounds": [600, 400, 500]}, [600, 400, 500]),
    ],
)
def test_rounds_that_continue(tmp_path, first, then, sizes):
    opened(tmp_path / "run", **first)
    topped = opened(tmp_path / "run", **then)
    assert topped["rounds"] == sizes
    assert topped["budget"] == sum(sizes)
    assert topped[FIRST_ROUNDS] == first["rounds"]
    assert opened(tmp_path / "run", **then) == topped  # the same command again
    resumed = {key: value for key, value in topped.items() if key != FIRST_ROUNDS}
    assert create_or_top_up(tmp_path / "run", resumed).settings == topped


@pytest.mark.parametrize(
    "then",
    [{"budget": 2000, "rounds": 5}, {"budget": 500, "rounds": 10}, {"budget": 2000, "rounds": 10, "seed": 1}],
)
def test_rounds_that_do_not_continue(tmp_path, then):
    opened(tmp_path / "run", budget=1000, rounds=10)
    with pytest.raises(StoreError, match="holds a run with other settings"):
        opened(tmp_path / "run", **then)
    assert RunDirectory.open(tmp_path / "run").settings["budget"] == 1000


@pytest.mark.parametrize("steps", range(1, 7))
def test_a_top_up_that_is_cut_short_can_be_made_again(tmp_path, monkeypatch, steps):
    """A crash at any point: after so many changes of files."""
    from unle.store import run_directory, safe_files

    settings = {"method": "sunle", "budget": 100, "rounds": 2, "seed": 0}
    run = RunDirectory.create(tmp_path / "run", settings)
    run.draws.write_text("draws")
    run.report.write_text("page")
    (run.path / "checks_begun.json").write_text("{}")  # interrupted
    run.seal("draws", [run.draws])
    for number in (0, 1):
        run.append_metrics(stage="round", number=number)
    run.append_metrics(stage="seconds", fit=1.0)
    left = iter(range(steps))

    def fails(original):
        def function(*arguments, **options):
            if next(left, None) is None:
                raise OSError("the power is gone")
            return original(*arguments, **options)

        return function

    with monkeypatch.context() as patch:
        for module, name in (
            (run_directory, "write_atomically"),
            (run_directory, "write_sealed"),
            (safe_files, "write_atomically"),
        ):
            patch.setattr(module, name, fails(getattr(module, name)))
        patch.setattr(run_directory, "_make", fails(run_directory._make))
        with pytest.raises(OSError, match="power"):
            create_or_top_up(tmp_path / "run", settings | {"budget": 200})
    topped = create_or_top_up(tmp_path / "run", settings | {"budget": 200})
    assert topped.settings["rounds"] == [50] * 4
    assert [record["number"] for record in topped.read_metrics()] == [0]
    aside = tmp_path / "run" / "earlier" / "100"
    assert (aside / "draws.nc").read_text() == "draws"
    assert not list(topped.path.glob("checks*"))
    assert len([json.loads(line) for line in (aside / "metrics.jsonl").read_text().splitlines()]) == 3
    assert not topped.finished("draws")
