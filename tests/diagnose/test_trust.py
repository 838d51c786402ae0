"""Each check on a right model and on wrong ones; the models are those of scripts/trust.py."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from unle.diagnose.calibration_checks import references
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


def test_who_has_learned_nothing_is_found_out():
    """The prior passes SBC and coverage, as it must; TARP, whose points depend on x, sees through it."""
    told = trust.calibration(0, "the prior")
    assert trust.sbc(told).verdict == trust.coverage(told).verdict == "good"
    assert trust.tarp(told).verdict == "bad"


def test_the_point_of_a_pair_does_not_depend_on_its_truth():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3))
    truth = x[:, :2] + rng.normal(size=(60, 2))
    before = references(truth, x, seed=1)
    assert np.corrcoef(before[:, 0], x[:, 0])[0, 1] > 0.3
    changed = truth.copy()
    changed[7] += 100
    after = references(changed, x, seed=1)
    np.testing.assert_array_equal(after[7], before[7])
    assert (after != before).any()


def test_an_energy_that_overfits_later_is_judged_where_it_was_kept():
    check = trust.trained(0, "right, and overfitted later")
    assert "then fell" in check.advice
    assert check.numbers["best_chunk"] < 16
    settled = trust.trained(0, "right")
    assert "settled" in settled.advice


def test_a_gain_of_nothing_is_not_called_a_rise():
    records = [{"stage": "training", "chunk": i, "gain": 0.01 - 0.3 * i, "gap": 0.0, "ess": 0.5} for i in range(6)]
    check = trust.training_health([*records, {"stage": "fitted", "energy": "full", "gain": 0.01}])
    assert check.verdict == "good"
    assert "hardly beat" in check.advice


def test_energies_that_were_thrown_away_do_no_harm():
    records = [
        {"stage": "training", "chunk": i, "gain": -1.0, "gap": 9.0, "ess": 0.001, "recoveries": 12} for i in range(6)
    ]
    kept, thrown = ({"stage": "fitted", "energy": kind, "gain": 0.0} for kind in ("full", "none"))
    assert trust.training_health([*records, kept]).verdict == "bad"
    check = trust.training_health([*records, thrown])
    assert check.verdict == "good"
    assert "No energy was kept" in check.advice


def test_an_earlier_training_on_another_base_is_not_judged():
    earlier, later = (
        [{"stage": "training", "chunk": i, "gain": 0.1 * i, "gap": gap, "ess": 0.9, "recoveries": 0} for i in range(6)]
        for gap in (99.0, 0.0)
    )
    fitted = {"stage": "fitted", "energy": "full", "gain": 0.5}
    check = trust.training_health([*earlier, *later, fitted])
    assert check.verdict == "good"
    assert len(check.arrays["gain"]) == 6
    assert trust.training_health([*later, *earlier, fitted]).verdict == "bad"


def test_the_energy_that_was_kept_is_judged_by_its_own_training():
    kinds = {"theta-free": (False, False), "continued": (True, True), "full": (True, False)}
    records = [
        {
            "stage": "training",
            "sees_theta": sees,
            "continued": more,
            "chunk": i,
            "gain": gain,
            "gap": 0.0,
            "ess": 0.5,
        }
        for gain, (sees, more) in enumerate(kinds.values())
        for i in range(4)
    ]
    for gain, kind in enumerate(kinds):
        check = trust.training_health([*records, {"stage": "fitted", "energy": kind, "gain": float(gain)}])
        np.testing.assert_array_equal(check.arrays["gain"], np.full(4, gain))


def test_the_words_of_coverage_fit_its_numbers():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(200, 1))
    draws = 1e-3 * rng.normal(size=(200, 50, 1))  # a posterior of no width at all
    calibration = trust.Calibration.of_draws(
        truth, truth, draws, heights=-(draws[..., 0] ** 2), true_height=-(truth[:, 0] ** 2)
    )
    check = trust.coverage(calibration)
    assert check.verdict == "bad"
    assert "overconfident" in check.advice


def test_a_small_difference_from_the_grid_is_none_however_sure():
    axis = np.linspace(0, 1, 201)
    uneven = 1 + 0.04 * np.sign(axis - 0.5)  # total variation 0.02
    draws = np.linspace(0, 1, 50_000)[:, None]
    check = trust.grid_agreement([axis], uneven / uneven.sum() * 200, draws, ess=50_000)
    assert check.numbers["p"] < 0.01
    assert check.verdict == "good"
