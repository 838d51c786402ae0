"""The live view: what it sees at each stage, and that it only looks."""

import io
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from unle.cli import app
from unle.cli.run_status import describe, run_status
from unle.cli.watch import panel
from unle.errors import InputError, StoreError
from unle.store import RunDirectory, held, peek_simulations, this_machine


@pytest.fixture
def run(tmp_path):
    return RunDirectory.create(tmp_path / "run", {"budget": 100, "x_o": [[0.0]]})


def simulate(run, start: int, stop: int) -> None:
    with run.simulations() as store:
        ids = range(start, stop)
        reasons = ["NaN" if i % 10 == 0 else "" for i in ids]
        store.append(ids=ids, theta=np.zeros((stop - start, 1)), x=np.zeros((stop - start, 1)), reasons=reasons)


def test_every_stage_is_recognised(run):
    first = run_status(run)
    assert (first.stage, first.done, first.wanted) == ("simulating", 0, 100)
    simulate(run, 0, 40)
    now = run_status(run)
    assert (now.stage, now.done, now.invalid) == ("simulating", 40, 4)
    line = describe(now, first)
    assert "40 of 100 simulations (4 failed)" in line
    assert "per second" in line
    assert "left" in line
    simulate(run, 40, 100)
    assert run_status(run).stage == "training"
    run.append_metrics(stage="training", chunk=2, gain=0.5)
    assert "chunk 3, held-out gain +0.50" in describe(run_status(run), first)
    since = run_status(run)
    run.append_metrics(stage="training", chunk=3, chunks=20, gain=0.6)
    line = describe(run_status(run), since)
    assert "chunk 4 of at most 20, held-out gain +0.60" in line
    assert "at most" in line.split(";")[2]
    run.append_metrics(stage="fitted", outcome="CONVERGED")
    assert run_status(run).stage == "normalising"
    run.likelihood(0).with_suffix(".json").write_text("{}")
    assert run_status(run).stage == "sampling"
    run.draws.touch()
    run.append_metrics(stage="seconds", fit=1.0)
    assert run_status(run).stage == "finished"


def test_rounds_are_counted(tmp_path):
    run = RunDirectory.create(tmp_path / "run", {"budget": 101, "rounds": 2, "x_o": [[0.0]]})
    simulate(run, 0, 51)
    now = run_status(run)
    assert (now.stage, now.wanted) == ("fitting", 51)
    assert "fitting, round 1 of 2" in describe(now, now)
    run.append_metrics(stage="round", number=0, distance=0.5)
    with run.simulations() as store:
        store.append(ids=range(50), theta=np.zeros((50, 1)), x=np.zeros((50, 1)), reasons=[""] * 50, round=1)
    now = run_status(run)
    assert (now.stage, now.round, now.wanted) == ("training", 1, 50)
    assert "round 1 was 0.5 sd from x_o" in describe(now, now)
    run.likelihood(1).with_suffix(".json").write_text("{}")
    assert run_status(run).stage == "sampling"


def test_the_last_line_is_about_all_rounds(tmp_path):
    run = RunDirectory.create(tmp_path / "run", {"method": "sunle", "budget": 80, "rounds": 2})
    simulate(run, 0, 40)
    with run.simulations() as store:
        store.append(ids=range(40), theta=np.zeros((40, 1)), x=np.zeros((40, 1)), reasons=[""] * 40, round=1)
    run.append_metrics(stage="training", chunk=2, gain=-0.5)
    run.append_metrics(stage="fitted", sentence="Kept: Gaussian base, no energy; it will do.")
    run.append_metrics(stage="seconds", fit=1.0)
    now = run_status(run)
    expected = "finished after 2 rounds; 80 of 80 simulations (4 failed); Kept: Gaussian base, no energy; it will do"
    assert describe(now, now) == expected


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


def test_a_baseline_shows_its_loss(run):
    simulate(run, 0, 100)
    run.append_metrics(stage="descent", step=200, steps=2000, loss=1.5, held_out=1.25)
    now = run_status(run)
    assert (now.stage, now.step, now.steps) == ("training", 200, 2000)
    assert "step 200, loss 1.500, held-out loss 1.250" in describe(now, now)


def test_simulations_alone_can_be_watched(tmp_path):
    run = RunDirectory.create(tmp_path / "run", {"method": "simulate", "budget": 100})
    simulate(run, 0, 99)
    assert run_status(run).stage == "simulating"
    simulate(run, 99, 100)
    assert run_status(run).stage == "finished"


def test_watching_ends_with_the_run(run):
    simulate(run, 0, 100)

    def finish():
        with run.working():
            time.sleep(0.3)
            run.draws.touch()
            run.append_metrics(stage="seconds", fit=1.0)

    thread = threading.Thread(target=finish)
    thread.start()
    while not held(run.lock):
        time.sleep(0.01)
    result = CliRunner().invoke(app, ["watch", str(run.path), "--every", "0.1"])
    thread.join()
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].startswith("training")
    assert lines[-1].startswith("finished")


def test_a_killed_run_ends_the_command_and_says_so(run):
    simulate(run, 0, 40)
    program = f"""
import os, signal
from unle.store import RunDirectory
with RunDirectory.open({str(run.path)!r}).working():
    os.kill(os.getpid(), signal.SIGKILL)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", program], env=environment).returncode == -signal.SIGKILL
    result = CliRunner().invoke(app, ["watch", str(run.path)])
    assert result.exit_code == 1
    assert result.stdout.startswith("stopped; 40 of 100 simulations")
    assert "its process is gone" in result.stdout
    assert f"unle resume {run.path}" in result.stderr


@pytest.mark.parametrize(
    ("error", "said"),
    [(InputError("expected bread; got stones.\n\nmore"), "expected bread"), (KeyboardInterrupt(), "Ctrl-C")],
)
def test_a_run_that_failed_says_why(run, error, said):
    simulate(run, 0, 40)
    with pytest.raises(type(error)), run.working():
        raise error
    now = run_status(run)
    assert now.stage == "stopped"
    assert said in now.why
    assert "more" not in now.why
    with run.locked():  # somebody goes on
        assert run_status(run).stage == "simulating"
    run.lock.write_text("process 1 on " + this_machine())  # and is killed: the old reason is not theirs
    assert "gone" in run_status(run).why


def test_another_machine_reads_the_counts_and_waits_longer(run):
    simulate(run, 0, 40)
    run.lock.write_text("process 1 on elsewhere")
    (run.path / "simulations.sqlite").rename(run.path / "hidden")
    now = run_status(run)
    assert (now.stage, now.done, now.invalid) == ("simulating", 40, 4)
    for path in [run.path, *run.path.rglob("*")]:
        os.utime(path, (1e9, 1e9))
    assert run_status(run).stage == "stopped"
    run.counts.write_text("no counts")
    assert run_status(run).done == 0


def test_the_view_on_a_terminal_is_whole(run):
    first = run_status(run)
    simulate(run, 0, 40)
    console = Console(file=io.StringIO(), width=100)
    console.print(panel(run, run_status(run), first))
    lines = console.file.getvalue().splitlines()
    assert any("40 of 100 simulations (4 failed)" in line for line in lines)
    assert any("per second" in line for line in lines)
    assert {len(line.rstrip()) for line in lines} == {len(lines[0].rstrip())}


def test_counts_can_be_read_while_somebody_writes(run):
    with run.simulations() as store:
        store.append(ids=[0], theta=np.zeros((1, 1)), x=np.zeros((1, 1)), reasons=[""])
        assert peek_simulations(run.path / "simulations.sqlite")[0].done == 1
    (run.path / "other.sqlite").write_text("no database at all, but long enough to look at" * 30)
    with pytest.raises(StoreError, match="could not be read"):
        peek_simulations(run.path / "other.sqlite")
