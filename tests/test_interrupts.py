"""Ctrl-C is answered at once, in a real process, also while its main thread hears of no signal."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from unle.cli.console import _answer

BUSY = """
import hashlib, typer
from unle.cli.console import plain_ending
from unle.progress import activity

def work(doing: str, amount: int):
    with plain_ending(lambda: "40 simulations are saved in runs/m; to go on: unle resume runs/m"):
        activity(doing)
        print("ready", flush=True)
        hashlib.pbkdf2_hmac("sha256", b"a", b"b", amount)  # one long instruction, as a compiler is

typer.run(work)
"""
FORGETFUL = """
import time, typer
from unle.cli.console import plain_ending

class Slow:
    def __del__(self):  # Python prints and forgets an exception in here
        print("ready", flush=True)
        time.sleep(50)

def work(doing: str, amount: int):
    with plain_ending(lambda: "40 simulations are saved in runs/m; to go on: unle resume runs/m"):
        Slow()
        time.sleep(50)

typer.run(work)
"""
ANSWER = "Ctrl-C: stopping"
SAVED = "stopped; 40 simulations are saved in runs/m; to go on: unle resume runs/m"
MINUTES, SECONDS = 2_000_000_000, 4_000_000  # of work


def start(activity: str, work: int, program: str = BUSY) -> subprocess.Popen:
    process = subprocess.Popen(
        [sys.executable, "-c", program, activity, str(work)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.2)
    return process


@pytest.fixture
def busy():
    processes = []

    def begin(*arguments) -> subprocess.Popen:
        processes.append(start(*arguments))
        return processes[-1]

    yield begin
    for process in processes:
        process.kill()
        process.wait()


def test_the_end_of_a_job_is_answered_like_ctrl_c(busy):
    process = busy("", SECONDS)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.splitlines() == ["SIGTERM: stopping; once more to stop without waiting.", SAVED]


def test_a_process_that_compiles_answers_and_ends_without_waiting(busy):
    process = busy("compiling", MINUTES)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.splitlines() == [f"{ANSWER} (compiling); once more to stop without waiting.", SAVED]


def test_a_process_that_does_not_compile_finishes_its_step(busy):
    process = busy("", SECONDS)
    process.send_signal(signal.SIGINT)
    assert process.stderr.readline().startswith(ANSWER)
    assert process.poll() is None  # it was answered before the step was over
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert errors.splitlines() == [SAVED]


def test_an_interrupt_that_python_forgets_is_raised_again(busy):
    process = busy("", 0, FORGETFUL)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors.splitlines() == [f"{ANSWER}; once more to stop without waiting.", SAVED]


def test_an_interrupt_is_answered_also_when_python_forgets_it_first():
    """On a busy machine Python may have dropped the exception before the answering thread wakes up."""
    reader, writer = socket.socketpair()
    reached, lost, said = threading.Event(), threading.Event(), []
    reached.set()
    lost.set()
    with writer:
        writer.send(bytes([signal.SIGINT, signal.SIGINT]))  # pressed once, and raised again
    _answer(reader, reached, lost, said.append, lambda: "nothing was written.")
    assert said == [f"{ANSWER}; once more to stop without waiting."]


def test_the_second_interrupt_does_not_wait(busy):
    process = busy("", MINUTES)
    process.send_signal(signal.SIGINT)
    assert process.stderr.readline().startswith(ANSWER)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.splitlines() == [SAVED]


MODEL = """
import unle
prior = unle.Prior.uniform(low=[-1.0], high=[1.0])
def simulator(theta, rng):
    return theta + 0.1 * rng.normal(size=1)
x_o = [0.3]
"""


@pytest.mark.slow
def test_a_run_that_is_interrupted_while_it_compiles_says_how_to_go_on(tmp_path):
    model, out = tmp_path / "model.py", tmp_path / "run"
    model.write_text(MODEL)
    terminal, child_end = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "unle.cli", "run", str(model), "--budget", "100", "--out", str(out)],
        env=os.environ | {"UNLE_PROGRESS": "1", "UNLE_CACHE": "0", "TERM": "xterm", "COLUMNS": "200"},
        stderr=child_end,
        stdout=child_end,
    )
    os.close(child_end)
    seen, pressed, answered = "", 0.0, 0.0
    try:
        while True:
            try:
                seen += os.read(terminal, 65536).decode(errors="replace")
            except OSError:  # the terminal is closed
                break
            if not pressed and re.search("Training.*compiling", seen):
                process.send_signal(signal.SIGINT)
                pressed = time.monotonic()
            if pressed and not answered and ANSWER in seen:
                answered = time.monotonic()
    finally:
        process.kill()
        status = process.wait()
    assert status == 130
    assert answered - pressed < 1.5
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\s+", " ", seen)
    assert f"100 simulations are saved in {out}; to go on: unle resume {out}" in text
