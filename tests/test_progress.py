import io
import sys

import pytest

import unle.progress as module
from unle.progress import Pace, activity, enabled, progress, tell


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


def test_an_argument_that_is_refused_at_once_needs_no_line(written, clock):
    for total in (None, 9):
        with pytest.raises(ValueError, match="wrong"), progress("Training", total=total):
            raise ValueError("wrong")
    assert written() == ""


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
    assert module._LIVE == module._OPEN == []


def test_no_time_left_is_told_before_steps_are_steady():
    pace = Pace(0.0)
    pace.step(300.0, 10)  # compiles
    told = []
    for now in (301.0, 302.0, 303.0):
        told.append(pace.seconds_left(100))
        pace.step(now, 10)
    assert told == [None, None, None]
    assert pace.seconds_left(100) == pytest.approx(10.0)  # not 300 s and more, as the first step would have it


def test_no_time_left_is_told_of_steps_of_very_different_length():
    pace = Pace(0.0)
    for now in (1.0, 2.0, 3.0, 13.0):
        pace.step(now, 1)
    assert pace.seconds_left(10) is None


def test_many_short_steps_count_as_few_long_ones():
    pace = Pace(0.0)
    for k in range(1, 2001):
        pace.step(k / 1000, 1)
    assert pace.seconds_left(500) == pytest.approx(0.5, rel=0.05)


def test_the_time_left_of_a_training_is_a_limit(written, clock):
    with progress("Training", total=100, at_most=True) as bar:
        for _ in range(6):
            clock[0] += 2.0
            bar.advance(10)
    assert "Training: 60/100 (60 %) after 12 s, at most 8 s left\n" in written()


def test_a_line_is_written_although_nothing_advances_and_says_what_is_done(written, clock, monkeypatch):
    monkeypatch.setattr(module, "SECONDS_BETWEEN_LOOKS", 0.01)
    with progress("Sampling"):
        activity("compiling")
        clock[0] += 6.0
        for _ in range(2000):  # until the thread has looked
            module.threading.Event().wait(0.01)
            if lines := written():
                break
        assert lines == "Sampling: after 6.0 s, compiling\n"
    assert "compiling" not in written()  # it ends with its bar


def test_lines_of_a_nested_bar_name_the_outer_one(written, clock):
    with progress("Round 3 of 10"), progress("Training", total=2) as bar:
        bar.advance(2)
    assert written().splitlines()[0] == "Round 3 of 10: Training: 2/2 (100 %) done after 0.0 s"


def test_a_stage_that_is_over_at_once_needs_no_line(written, clock):
    with progress("Sampling"):
        pass
    assert written() == ""


def test_a_title_that_is_shown_already_is_not_shown_twice(written, clock):
    with progress("Fitting"), progress("Fitting"):
        clock[0] += 2
    assert written() == "Fitting: done after 2.0 s\n"


def test_it_may_decorate_a_function(written, clock):
    @progress("Fitting")
    def fit():
        clock[0] += 2
        return 7

    assert fit() == fit() == 7
    assert written() == 2 * "Fitting: done after 2.0 s\n"


def test_one_line_beside_the_bars_is_silent_with_them(written):
    tell("Kept: the base.")
    enabled(False)
    try:
        tell("Kept: the energy.")
    finally:
        enabled(True)
    assert written() == "Kept: the base.\n"


def test_of_few_long_steps_the_time_left_is_told_after_the_second(written, clock):
    with progress("SUNLE", total=11, few=True) as bar:
        for seconds in (20.0, 10.0):
            clock[0] += seconds
            bar.advance(note="rounds and a last fit")
    lines = written().splitlines()
    assert lines[0] == "SUNLE: 1/11 (9 %) after 20 s, rounds and a last fit"
    assert lines[1] == "SUNLE: 2/11 (18 %) after 30 s, about 2 min left, rounds and a last fit"
