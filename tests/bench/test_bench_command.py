"""`unle bench` as a program: killed and run again, and the quick benchmark."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from unle_bench.results.results_store import ResultsStore

SOURCE = Path(__file__).parents[2] / "src"
SLEEPY = """
import time
import numpy as np
from unle_bench.methods.method_adapter import AbstractMethodAdapter, Outcome

class Sleepy(AbstractMethodAdapter):
    sequential = True
    def infer(self, task, *, budget, seed, observations, draws):
        time.sleep(SECONDS if seed else FIRST)
        with open(LOG, "a") as log:
            log.write(f"{seed} {tuple(observations)}\\n")
        return Outcome(draws={i: task.prior.sample(draws, seed=seed + i) for i in observations})

METHODS = {"sleepy": Sleepy()}
"""


def rows_of(path):
    with sqlite3.connect(path) as connection:
        return dict(connection.execute("SELECT seed || '/' || observation, created FROM results").fetchall())


def start(arguments, **options):
    environment = os.environ | {"PYTHONPATH": str(SOURCE), "UNLE_PROGRESS": "0"}
    command = [sys.executable, "-m", "unle.cli", "bench", *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, **options)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_killed_in_the_middle_nothing_is_lost_and_nothing_repeated(tmp_path, workers):
    path, log = tmp_path / "r.sqlite", tmp_path / "log.txt"
    own = tmp_path / "own.py"
    own.write_text(f"LOG = {str(log)!r}; FIRST = SECONDS = 0.3\n" + SLEEPY)
    arguments = ["--tasks", "two_moons", "--methods", "sleepy", "--seeds", "0-3", "--observations", "1-5"]
    arguments += ["--draws", 100, "--results", path, "--with", own, "--workers", workers]
    child = start(arguments)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (log.exists() and len(rows_of(path)) >= 4):
        assert child.poll() is None, child.communicate()[1].decode()
        time.sleep(0.1)
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    time.sleep(2)  # orphaned workers end with their parent
    before, runs_before = rows_of(path), log.read_text().splitlines()
    assert 4 <= len(before) < 20
    again = start(arguments)
    _, errors = again.communicate(timeout=180)
    assert again.returncode == 0, errors.decode()
    after, runs = rows_of(path), log.read_text().splitlines()
    assert len(after) == 20  # none lost
    assert all(after[name] == when for name, when in before.items())  # none written again
    finished_before = {tuple(name.split("/")) for name in before}
    for run in runs[len(runs_before) :]:
        seed, observation = run.split(" ", 1)
        assert (seed, observation.strip("(,)")) not in finished_before  # none computed again


@pytest.mark.slow
@pytest.mark.parametrize(("first", "send"), [(3600, os.kill), (0.1, os.killpg)])
def test_an_interrupt_does_not_wait_for_runs_of_hours(tmp_path, first, send):
    """To the parent alone, as a scheduler may send it; or to all, as a terminal does, while one worker is idle."""
    own, path = tmp_path / "own.py", tmp_path / "r.sqlite"
    own.write_text(f"LOG = '/dev/null'; FIRST = {first}; SECONDS = 3600\n" + SLEEPY)
    arguments = ["--tasks", "two_moons", "--methods", "sleepy", "--seeds", "0,1", "--observations", "1"]
    arguments += ["--draws", 100, "--results", path, "--with", own, "--workers", 2]
    child = start(arguments, start_new_session=True)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (_running(path) and (first > 1 or rows_of(path))):
        assert child.poll() is None, child.communicate()[1].decode()
        time.sleep(0.1)
    time.sleep(1)
    send(child.pid, signal.SIGINT)
    _, errors = child.communicate(timeout=20)
    assert b"the same command goes on" in errors


def _running(path):
    if not path.exists():
        return False
    with ResultsStore(path, read_only=True) as results:
        return bool(results.running())


@pytest.mark.slow
def test_quick_ends_within_five_minutes(tmp_path):
    path = tmp_path / "r.sqlite"
    begin = time.monotonic()
    child = start(["--quick", "--results", path, "--write", tmp_path / "table.md"])
    out, errors = child.communicate(timeout=600)
    assert child.returncode == 0, errors.decode()
    assert time.monotonic() - begin < 300
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT task, method, outcome, c2st FROM results").fetchall()
    assert len(rows) == 8
    assert {outcome for *_, outcome, _ in rows} == {"ok"}
    scores = {(task, method): c2st for task, method, _, c2st in rows}
    assert scores["two_moons", "aunle"] < 0.65
    assert b"best pub. amortised" in out
    assert "two_moons" in (tmp_path / "table.md").read_text()
