import io
import sys

import pytest

import unle.progress as module
from unle.progress import enabled, progress


@pytest.fixture
def written(monkeypatch, capsys):
    monkeypatch.setenv("UNLE_PROGRESS", "1")
    return lambda: capsys.readouterr().err


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def test_plain_lines_are_few_and_the_last_one_says_done(written, clock):
    with progress("Training", total=100) as bar:
        for _ in range(100):
            clock[0] += 0.12
            bar.advance(note="loss 1.5")
    lines = written().splitlines()
    assert lines[-1] == "Training: 100/100 (100 %) done after 12 s, loss 1.5"
    assert len(lines) == 3
    assert lines[0].startswith("Training: 42/100 (42 %) after 5.0 s")


def test_without_a_total_it_counts(written, clock):
    with progress("Simulating") as bar:
        bar.advance(7)
    assert written() == "Simulating: 7 done after 0.0 s\n"


def test_an_error_is_not_called_done(written, clock):
    def interrupted():
        with progress("Training", total=9) as bar:
            bar.advance(3)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert written() == "Training: 3/9 (33 %) stopped after 0.0 s\n"


@pytest.mark.parametrize("how", ["switch", "environment"])
def test_it_can_be_silenced(written, monkeypatch, how):
    if how == "environment":
        monkeypatch.setenv("UNLE_PROGRESS", "0")
    else:
        enabled(False)
    try:
        with progress("Training", total=2) as bar:
            bar.advance(2)
    finally:
        enabled(True)
    assert written() == ""


def test_bars_on_a_terminal_may_be_nested(written, monkeypatch):
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress("Rounds", total=2) as outer:
        for _ in range(2):
            with progress("Training", total=5) as inner:
                inner.advance(5, note="loss [1.0]")
            outer.advance()
    text = terminal.getvalue()
    assert "Rounds" in text
    assert "2/2" in text
    assert module._OPEN_RICH == []
