"""Mean times of benchmark runs."""

import pytest

from unle_bench.results.results_store import OK
from unle_bench.results.summaries import timings


def row(train, *, cold=False, method="nle", infer=1.0, workers=1):
    conditions = {"machine": "a", "device": "gpu", "together": 1, "cold": cold, "workers": workers}
    times = {"simulate_s": None, "train_s": train, "infer_s": infer}
    return {"task": "slcp", "budget": 1000, "method": method, "outcome": OK, "conditions": conditions, **times}


def test_times_that_are_missing_are_not_zeros():
    (found,) = timings([row(2.0), row(None), row(4.0)]).values()
    assert found.seconds == pytest.approx({"simulate": 0.0, "train": 3.0, "infer": 1.0})


def test_runs_that_found_their_programs_compiled_count_alone():
    (found,) = timings([row(2.0), row(50.0, cold=True)]).values()
    assert found.seconds["train"] == 2.0
    assert (found.compiling, found.rows) == (False, 1)
    (found,) = timings([row(50.0, cold=True)]).values()
    assert found.compiling


def test_methods_are_apart():
    assert len(timings([row(2.0), row(2.0, method="snle")])) == 2


def test_runs_without_any_time_have_no_line():
    assert timings([row(None, infer=None)]) == {}


def test_an_accelerator_that_was_shared_is_another_machine():
    assert [run.machine for run in timings([row(2.0), row(8.0, workers=4)])] == ["a", "a, shared by 4"]
