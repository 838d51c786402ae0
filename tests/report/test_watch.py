"""The live view: what it sees at each stage, and that it only looks."""

import numpy as np
import pytest
from typer.testing import CliRunner

from unle.cli import app
from unle.commands.watch import describe, look
from unle.errors import StoreError
from unle.store import RunDirectory
from unle.store.peek import peek_simulations


@pytest.fixture
def run(tmp_path):
    return RunDirectory.create(tmp_path / "run", {"budget": 100, "x_o": [[0.0]]})


def simulate(run, start: int, stop: int) -> None:
    with run.simulations() as store:
        ids = range(start, stop)
        reasons = ["NaN" if i % 10 == 0 else "" for i in ids]
        store.append(ids=ids, theta=np.zeros((stop - start, 1)), x=np.zeros((stop - start, 1)), reasons=reasons)


def test_every_stage_is_recognised(run):
    first = look(run)
    assert (first.stage, first.done, first.wanted) == ("simulating", 0, 100)
    simulate(run, 0, 40)
    now = look(run)
    assert (now.stage, now.done, now.invalid) == ("simulating", 40, 4)
    line = describe(now, first)
    assert "40 of 100 simulations (4 failed)" in line
    assert "per second" in line
    assert "left" in line
    simulate(run, 40, 100)
    assert look(run).stage == "training"
    run.append_metrics(stage="training", chunk=2, gain=0.5)
    assert "chunk 3, held-out gain +0.50" in describe(look(run), first)
    run.likelihood(0).with_suffix(".json").write_text("{}")
    assert look(run).stage == "sampling"
    run.draws.touch()
    run.append_metrics(stage="seconds", fit=1.0)
    assert look(run).stage == "finished"


def test_rounds_are_counted(tmp_path):
    run = RunDirectory.create(tmp_path / "run", {"budget": 101, "rounds": 2, "x_o": [[0.0]]})
    simulate(run, 0, 51)
    now = look(run)
    assert (now.stage, now.wanted) == ("fitting", 51)
    assert "fitting, round 1 of 2" in describe(now, now)
    run.append_metrics(stage="round", number=0, distance=0.5)
    with run.simulations() as store:
        store.append(ids=range(50), theta=np.zeros((50, 1)), x=np.zeros((50, 1)), reasons=[""] * 50, round=1)
    now = look(run)
    assert (now.stage, now.round, now.wanted) == ("training", 1, 50)
    assert "round 1 was 0.5 sd from x_o" in describe(now, now)
    run.likelihood(1).with_suffix(".json").write_text("{}")
    assert look(run).stage == "sampling"


def test_a_finished_run_ends_the_command(run):
    simulate(run, 0, 100)
    run.draws.touch()
    run.append_metrics(stage="seconds", fit=1.0)
    result = CliRunner().invoke(app, ["watch", str(run.path)])
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("finished")


def test_once_looks_once(run):
    before = sorted(path.name for path in run.path.rglob("*"))
    result = CliRunner().invoke(app, ["watch", str(run.path), "--once"])
    assert result.exit_code == 0, result.output
    assert "0 of 100 simulations" in result.stdout
    assert sorted(path.name for path in run.path.rglob("*")) == before


def test_counts_can_be_read_while_somebody_writes(run):
    with run.simulations() as store:
        store.append(ids=[0], theta=np.zeros((1, 1)), x=np.zeros((1, 1)), reasons=[""])
        assert peek_simulations(run.path / "simulations.sqlite")[0].done == 1
    (run.path / "other.sqlite").write_text("no database at all, but long enough to look at" * 30)
    with pytest.raises(StoreError, match="could not be read"):
        peek_simulations(run.path / "other.sqlite")
