"""Checks around one observation: calibration with the posterior as prior, pairs, the rank of the likelihood."""

import importlib.util
from dataclasses import replace
from functools import cache
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import binom

from unle.diagnose import (
    FittedRun,
    calibrate_around,
    check,
    coverage,
    default_checks,
    fitted_run,
    posterior_sbc,
    predictive,
    sbc,
    tail_rank,
)
from unle.diagnose.calibration import OF_X_O, OF_Y, nearest_rows
from unle.diagnose.calibration_checks import region_coverage
from unle.diagnose.likelihoods import members_within, without_region
from unle.diagnose.predictive_checks import Replicas, distance_ratio
from unle.diagnose.record import NotApplicable, NotMade
from unle.diagnose.sampler_checks import ensemble_agreement
from unle.errors import InputError
from unle.methods import SequentialRun
from unle.models import GivenValid, Region
from unle.posterior import Draws, Posterior
from unle.simulators import Simulations
from unle.space import Prior, fit_theta_space, fit_x_space

FILE = Path(__file__).parents[2] / "scripts" / "trust.py"
spec = importlib.util.spec_from_file_location("trust_around", FILE)
trust = importlib.util.module_from_spec(spec)
spec.loader.exec_module(trust)
PRIOR = Prior.normal([0.0, 0.0], [1.0, 1.0], names=["a", "b"])


@pytest.fixture(scope="module", autouse=True)
def _fewer_posteriors():
    """Posteriors of prior simulations take most of the time of all checks; they are judged in test_calibration.py."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitted_run, "PAIRS", 100)
        yield


def test_nobody_is_ranked_among_draws_of_his_own_chain():
    likelihood, draws, pairs = trust.learned(0, "right", 15)
    around, shared = calibrate_around(PRIOR, likelihood, draws, pairs, ess=2000.0)
    left_out = ~np.isfinite(around.log_weights)
    np.testing.assert_array_equal(left_out.sum(axis=1), np.full(len(around), 500))
    for row, place in zip(left_out, pairs.index, strict=True):
        np.testing.assert_array_equal(np.flatnonzero(row) // 500, np.full(500, place // 500))
    assert around.names == ("a", "b", OF_Y, OF_X_O)
    assert shared == 1500


@pytest.mark.parametrize(("kind", "verdict"), [("right", "good"), ("too wide", "bad"), ("wrong near x_o", "bad")])
def test_the_nearest_simulations_show_what_is_wrong_near_x_o_alone(kind, verdict):
    check = trust.around_nearest(1, kind)
    assert check.verdict == verdict
    assert ("For the simulations nearest to x_o, " in check.advice) == (verdict == "bad")


def test_the_nearest_are_those_of_like_rank_in_every_coordinate():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 1, 2))
    x[:, :, 1] = np.exp(5 * x[:, :, 1])  # in raw units nothing but the second would count
    space = fit_x_space(x[:, 0])
    near = nearest_rows(space, x, np.array([[0.0, 1.0]]))
    assert len(near) == 200
    assert np.abs(x[near, 0, 0]).max() < 0.6
    assert np.abs(np.log(x[near, 0, 1])).max() < 3.0


def test_several_rows_are_compared_by_their_means_and_spreads():
    rng = np.random.default_rng(0)
    mean, spread = rng.normal(size=(2, 800))
    x = mean[:, None, None] + np.exp(spread)[:, None, None] * rng.normal(size=(800, 30, 1))
    space = fit_x_space(x.reshape(-1, 1))
    near = nearest_rows(space, x, rng.normal(size=(30, 1)))
    assert len(near) == 100
    assert np.abs(mean[near]).max() < 1.5
    assert np.abs(spread[near]).max() < 1.5


def test_a_run_calibrates_at_the_nearest_of_its_simulations():
    likelihood, draws, _ = trust.learned(1, "wrong near x_o", 15)
    run = evidence("wrong near x_o")
    space = fit_x_space(run.x)
    wrong = trust.WrongNear(likelihood.sd, likelihood.slope, jnp.asarray(run.draws.x_o[0]), space)
    found = default_checks(replace(run, posterior=Posterior(PRIOR, wrong)))
    assert next(one for one in found.checks if one.name == "nearest").verdict == "bad"
    assert next(one for one in found.checks if one.name == "sbc").verdict == "good"


def test_a_single_chain_is_taken_for_two():
    likelihood, draws, pairs = trust.learned(0, "right", 15)
    one = replace(draws, values=draws.values.reshape(1, 2000, 2))
    around, shared = calibrate_around(PRIOR, likelihood, one, pairs, ess=2000.0)
    assert np.isfinite(around.log_weights).sum(axis=1).min() == 1000
    assert shared == 1000
    assert posterior_sbc(around, effective=shared).verdict == "good"


def test_the_variance_of_shared_draws_is_that_of_the_test():
    """With few draws in common the plain test would cry wolf: b_k has the variance 1 + N / L."""
    rng = np.random.default_rng(0)
    n, size = 250, 250
    shift = []
    for _ in range(400):
        common, own = rng.normal(size=size), rng.normal(size=n)
        levels = (np.searchsorted(np.sort(common), own) + rng.uniform(size=n)) / (size + 1)
        shift.append(trust_coefficient(levels))
    ratio = np.var(shift) / (1 + n / size)
    assert abs(ratio - 1) < 3.3 * np.sqrt(2 / 400)  # three standard errors of a variance, and a tenth


def trust_coefficient(levels: np.ndarray) -> float:
    return float(np.sqrt(3) * np.sum(2 * levels - 1) / np.sqrt(len(levels)))


def test_few_effective_draws_are_refused():
    likelihood, draws, pairs = trust.learned(0, "right", 15)
    with pytest.raises(NotMade, match="independent draws"):
        calibrate_around(PRIOR, likelihood, draws, pairs, ess=60.0)


@pytest.mark.parametrize(("model_sd", "verdict"), [(0.2, "good"), (0.14, "bad")])
def test_sharp_posteriors_of_many_parameters_have_draws_of_their_own(model_sd, verdict):
    """The draws at x_o hold almost nothing of a posterior given x_o and y in 24 dimensions; modes are found."""
    dim, noise = 24, 0.2
    prior, rng = Prior.normal([0.0] * dim, [1.0] * dim), np.random.default_rng(5)
    x_o = rng.normal(size=dim)
    variance = 1 / (1 + 1 / model_sd**2)  # of the learned posterior
    values = x_o * variance / model_sd**2 + np.sqrt(variance) * rng.normal(size=(4, 500, dim))
    draws = Draws(values, prior.names, x_o[None], 0)
    index = np.linspace(0, 1999, 200).astype(int)
    theta = np.asarray(draws)[index]
    x = theta[:, None, None] + noise * rng.normal(size=(200, 2, 1, dim))
    pairs = Replicas(theta, index, x, np.ones((200, 2), bool))
    around, shared = calibrate_around(
        prior, trust.Normal(jnp.asarray(model_sd), jnp.asarray(0.0)), draws, pairs, ess=2000.0
    )
    assert around.effective > 100
    assert np.isinf(shared)
    assert posterior_sbc(around, effective=shared).verdict == verdict


def test_the_box_counts_once():
    likelihood, draws, pairs = trust.learned(0, "right", 15)
    space = fit_theta_space(np.asarray(draws))
    box = Region(space, jnp.array([-0.5, -0.5]), jnp.array([0.5, 0.5]))
    inside = GivenValid(likelihood, box)
    assert without_region(inside) is likelihood
    assert without_region(GivenValid(inside, box)) is likelihood
    plain, _ = calibrate_around(PRIOR, likelihood, draws, pairs, ess=2000.0)
    boxed, _ = calibrate_around(PRIOR, inside, draws, pairs, ess=2000.0)
    np.testing.assert_array_equal(plain.log_weights, boxed.log_weights)


def test_x_o_in_the_middle_of_its_replicas_is_no_fault():
    """One datum, a flat prior: x_o is the very mean of its replicas, for the right posterior."""
    rng = np.random.default_rng(0)
    for x_o in (0.0, 3.0):
        draws = x_o + trust.NOISE * rng.normal(size=(500, 1))
        pairs = trust.pairs_of(draws, rng)
        check = predictive(pairs.x.reshape(-1, 1, 1), [x_o], pairs=pairs)
        assert check.verdict == "good"
        assert check.numbers["distance_ratio"] == pytest.approx(1.0, abs=0.15)


def test_a_posterior_seven_times_too_wide_is_called_too_wide():
    check = trust.replicated(0, "seven times too wide")
    assert check.verdict == "bad"
    assert "too wide" in check.advice
    assert check.numbers["smallest_tail"] > 0.01  # x_o lies well inside: the other looks see nothing


def test_a_simulator_without_noise_has_no_unit_of_width():
    theta = np.random.default_rng(0).normal(size=(60, 2))
    same = np.repeat(theta[:, None, None], 2, axis=1)
    assert distance_ratio(Replicas(theta, np.arange(60), same, np.ones((60, 2), bool)), np.zeros((1, 2))) is None
    noisy = np.concatenate([same, np.random.default_rng(1).normal(size=(60, 2, 1, 1))], axis=3)
    found = distance_ratio(Replicas(theta, np.arange(60), noisy, np.ones((60, 2), bool)), np.zeros((1, 3)))
    assert found is not None
    assert found.p_value > 0.01  # the coordinates without noise are left out


def test_an_observation_of_no_likelihood_is_lost():
    assert tail_rank(np.full(50, -np.inf), np.linspace(-3, 0, 50)).verdict == "bad"


@pytest.mark.parametrize(("true", "most"), [(0.88, 0.02), (0.85, 0.001)])
def test_overconfident_regions_are_seldom_called_good(true, most):
    good = [
        k for k in range(301) if region_coverage(np.r_[np.full(k, 0.2), np.full(300 - k, 0.99)][:300]).at_95 >= 0.92
    ]
    assert binom.sf(min(good) - 1, 300, true) < most
    exactly = np.r_[np.linspace(0, 0.95, 276), np.linspace(0.951, 1, 24)]
    assert region_coverage(exactly).p_value > 0.01
    short = np.r_[np.linspace(0, 0.95, 275), np.linspace(0.951, 1, 25)]
    assert region_coverage(short).p_value < 0.01


def test_one_width_of_five_that_is_off_by_two_is_seen():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(300, 5))
    x = truth + trust.NOISE * rng.normal(size=truth.shape)
    for factor in (0.5, 2.0):
        sd = np.sqrt(trust.VARIANCE) * np.array([factor, 1, 1, 1, 1])
        draws = trust.SHRINK * x[:, None] + sd * rng.normal(size=(300, 500, 5))

        def height(theta, centre, sd=sd):
            return -0.5 * np.sum(((theta - trust.SHRINK * centre) / sd) ** 2, axis=-1)

        told = trust.Calibration.of_draws(
            truth, x, draws, heights=height(draws, x[:, None]), true_height=height(truth, x)
        )
        assert sbc(told).verdict == "bad"
        assert coverage(told).verdict == "bad"


def test_members_of_a_geometric_mean_are_weighed_by_it():
    rng = np.random.default_rng(0)
    centres = np.array([-0.2, 0.2])
    for geometric in (True, False):
        side = 0.0 if geometric else rng.choice(centres, 4000)
        draws = side + rng.normal(size=4000)
        check = ensemble_agreement(-0.5 * (draws[:, None] - centres) ** 2, draws[:, None], geometric=geometric)
        np.testing.assert_allclose(check.arrays["means"][:, 0], centres, atol=4 / np.sqrt(4000))


def evidence(kind: str, **changes) -> FittedRun:
    likelihood, draws, _ = trust.learned(3, kind, 15)
    prior = Prior.normal([0.0, 0.0], [1.0, 1.0], names=["a", "b"])
    rng = np.random.default_rng(1)
    theta = rng.normal(size=(300, 2))
    x = theta + trust.NOISE * rng.normal(size=theta.shape)
    info = {"acceptance": 0.3}
    return FittedRun(
        **{"posterior": Posterior(prior, likelihood), "draws": replace(draws, info=info), "theta": theta, "x": x}
        | {"simulator": simulator, "seed": 7, **changes}
    )


def simulator(theta, rng):
    return theta + trust.NOISE * rng.normal(size=2)


@cache
def checked(kind, *, amortised=True):
    return default_checks(evidence(kind, amortised=amortised))


def test_the_verdict_rests_on_checks_that_can_refute():
    right = checked("right")
    made = {check.name for check in right.checks}
    assert {"outlier", "sampler", "predictive", "tail_rank", "posterior_sbc", "sbc", "coverage", "tarp"} <= made
    assert right.verdict == "good", right.reasons
    wrong = checked("too narrow")
    assert wrong.verdict == "bad"
    assert wrong.reasons[0].startswith("bad: ")


def test_a_sequential_run_is_calibrated_around_its_observation():
    found = checked("too narrow", amortised=False)
    assert {one.name for one in found.skipped} >= {"sbc", "coverage", "tarp"}
    assert not found.missing
    assert next(check for check in found.checks if check.name == "posterior_sbc").verdict == "bad"
    assert checked("right", amortised=False).verdict == "good"


@pytest.mark.parametrize("sequential", [False, True])
def test_one_call_makes_the_checks_of_a_run(sequential):
    """With simulations, a pair of tables or a sequential run, as the checks of the run itself."""
    run = evidence("too narrow", amortised=not sequential)
    rows = (
        SequentialRun(run.posterior, Simulations.from_arrays(run.theta, run.x), ())
        if sequential
        else (run.theta, run.x)
    )
    found = check(run.posterior, run.draws, rows, simulator, seed=7)
    expected = checked("too narrow", amortised=not sequential)
    assert [(one.name, one.verdict, one.numbers) for one in found.checks] == [
        (one.name, one.verdict, one.numbers) for one in expected.checks
    ]
    first, *reasons = str(found).splitlines()
    assert first == f"verdict: bad ({found.standing})"
    assert [line.strip() for line in reasons] == list(found.reasons)
    without = str(check(run.posterior, run.draws, rows, seed=7))
    assert without.startswith("verdict: ")
    assert "check(..., simulator=simulator)" in without
    assert "DIR" not in without


def test_the_simulator_in_the_place_of_simulations_is_noticed():
    run = evidence("right")
    with pytest.raises(InputError, match="expected the simulations that the posterior was fitted to"):
        check(run.posterior, run.draws, simulator)


@pytest.mark.parametrize("changes", [{"simulator": None}, {"seconds": 60.0}])
def test_simulations_that_cannot_be_had_leave_a_doubt(changes):
    found = default_checks(evidence("right", **changes, amortised=False))
    assert {one.name for one in found.missing} == {"predictive", "tail_rank", "posterior_sbc"}
    assert found.verdict == "doubtful"
    assert all("unle check DIR" in line for line in found.reasons)


def test_records_that_the_fit_did_not_write_are_not_asked_for():
    for made_of in (trust.information, trust.certificate, trust.lost_rounds):
        with pytest.raises(NotApplicable):
            made_of([{"stage": "fitted"}])


def test_numbers_that_are_not_numbers_are_bad():
    nan = float("nan")
    assert trust.information([{"stage": "information", "nats": nan, "error": 0.1}]).verdict == "bad"
    record = {"log_z_gap": nan, "log_z_error": 0.1, "pareto_k": 0.2, "outweigh": 0.0}
    assert trust.certificate([{"stage": "certificate", **record}]).verdict == "bad"


def test_a_likelihood_without_members_has_none():
    assert members_within(trust.learned(0, "right", 15)[0]) is None
