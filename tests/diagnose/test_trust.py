"""Each check on a right model and on wrong ones; the models are those of scripts/trust.py."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from unle.posterior import Draws

FILE = Path(__file__).parents[2] / "scripts" / "trust.py"
spec = importlib.util.spec_from_file_location("trust", FILE)
trust = importlib.util.module_from_spec(spec)
spec.loader.exec_module(trust)

SEEDS = {"local_c2st": 1}  # of the fast tier; the rest take milliseconds


@pytest.mark.parametrize("name", trust.CASES)
def test_a_check_tells_right_from_wrong(name):
    seeds = SEEDS.get(name, 4)
    for kind, truth, counts, _ in trust.tally(name, range(seeds)):
        assert trust.told_apart(truth, counts) >= seeds - (seeds > 1), (kind, counts)


@pytest.mark.slow
@pytest.mark.parametrize("name", trust.CASES)
def test_a_check_tells_right_from_wrong_in_95_of_100_seeds(name):
    for kind, truth, counts, _ in trust.tally(name, range(100)):
        assert trust.told_apart(truth, counts) >= 95, (kind, counts)
        if truth == "right":
            assert counts["bad"] <= 1, (kind, counts)


def test_four_stuck_chains_have_a_high_r_hat():
    """The axes are (chain, draw): were they swapped or interleaved, R-hat would be 1."""
    rng = np.random.default_rng(0)
    values = 0.1 * rng.normal(size=(4, 500, 2)) + np.arange(4)[:, None, None]
    check = trust.sampler_health(Draws(values, ("a", "b"), np.zeros((1, 2)), 0))
    assert check.numbers["r_hat"] > 2
    assert check.verdict == "bad"
    mixed = values.transpose(1, 0, 2).reshape(4, 500, 2)  # what the mistake would do
    assert trust.sampler_health(Draws(mixed, ("a", "b"), np.zeros((1, 2)), 0)).numbers["r_hat"] < 1.1


def test_chains_that_never_move_are_bad():
    values = np.zeros((4, 200, 1)) + np.arange(4)[:, None, None]
    assert trust.sampler_health(Draws(values, ("a",), np.zeros((1, 2)), 0)).verdict == "bad"
