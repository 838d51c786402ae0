"""Contestants in another environment: what a child process says and does, with a shell script for a child."""

import numpy as np
import pytest

import unle
from unle.errors import InputError
from unle_bench.methods.peers import ENVIRONMENT_VARIABLE, Peer

TASK = unle.task("bimodal")


@pytest.fixture
def infer(tmp_path, monkeypatch):
    """Run a peer whose Python is a script with the given lines; it finds the folder of the exchange in $2."""

    def run(lines, **parts):
        python = tmp_path / "python"
        python.write_text("#!/bin/sh\n" + "\n".join(lines) + "\n")
        python.chmod(0o755)
        monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(python))
        peer = Peer("nle", rounds=10, **parts)
        return peer.infer(TASK, budget=20, seed=0, observations={1: TASK.observation(1)}, draws=5)

    return run


SAYS = ["""echo 'versions {"sbi": "0"}'""", "echo round 1 0.5"]


def test_a_limit_stops_it_and_says_where_it_was(infer):
    seen = []
    outcome = infer([*SAYS, "exec sleep 60"], limit=0.5, on_round=lambda *told: seen.append(told))
    assert seen == [(1, 0.5)]
    assert outcome.reasons == {1: "stopped after 0.5 seconds, at round 2 of 10"}
    assert not outcome.draws
    assert outcome.notes["versions"] == {"sbi": "0"}


def test_draws_and_times_come_back(infer, tmp_path):
    np.save(tmp_path / "ready.npy", np.zeros((1, 5, 2)))
    ending = [f"cp {tmp_path / 'ready.npy'} $2/draws.npy", """echo 'done {"train": 1.0, "infer": 2.0}'"""]
    outcome = infer([*SAYS, *ending], limit=60.0)
    assert outcome.draws[1].shape == (5, 2)
    assert outcome.seconds == {"train": 1.0, "infer": 2.0}
    assert outcome.notes["rounds"] == [0.5]


def test_what_is_not_there_is_told_before_it_is_wanted(tmp_path, monkeypatch):
    monkeypatch.delenv(ENVIRONMENT_VARIABLE, raising=False)
    with pytest.raises(InputError, match="--sbi-python PATH"):
        Peer("nle").check()
    python = tmp_path / "python"
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(python))
    with pytest.raises(InputError, match="could not be run"):
        Peer("nle").check()
    for status, complaint in ((1, "has no sbi; try"), (0, None)):
        python.write_text(f"#!/bin/sh\nexit {status}\n")
        python.chmod(0o755)
        if complaint is None:
            Peer("nle").check()
        else:
            with pytest.raises(InputError, match=complaint):
                Peer("nle").check()


def test_a_child_that_breaks_is_named(infer):
    with pytest.raises(InputError, match="no such module"):
        infer([*SAYS, "echo no such module >&2"])
