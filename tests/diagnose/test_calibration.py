"""Weighted draws of many posteriors: exact levels, and the posterior they stand for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from unle.diagnose import CHECKS, Calibration, Findings, FittedRun, calibrate, coverage, run_checks, sbc, short, tarp
from unle.diagnose.calibration_sampling import weigh_around_modes, weigh_many
from unle.diagnose.likelihoods import log_likelihood_table
from unle.diagnose.record import NotMade
from unle.errors import InputError
from unle.models import TractableLikelihood
from unle.posterior import Draws, Posterior
from unle.space import Prior

NOISE = 0.2


class Normal(TractableLikelihood):
    """x = theta + noise, by a model that may have another sd."""

    sd: Float[Array, ""]

    def prepare(self, x):
        return x

    def log_likelihood(self, theta, w):
        return -0.5 * jnp.sum(((w - theta) / self.sd) ** 2) - len(w) * jnp.log(self.sd)


def simulator(theta, rng):
    return theta + NOISE * rng.normal(size=2)


PRIOR = Prior.normal([0.0, 0.0], [1.0, 1.0], names=["a", "b"])


def posterior(sd: float) -> Posterior:
    return Posterior(PRIOR, Normal(jnp.asarray(sd)))


@pytest.fixture(scope="module")
def pairs():
    rng = np.random.default_rng(0)
    theta = np.asarray(PRIOR.sample(150, seed=3))
    return theta, theta + NOISE * rng.normal(size=theta.shape)


@pytest.fixture(scope="module")
def right(pairs):
    return calibrate(posterior(NOISE), *pairs, draws=400)


@pytest.fixture(scope="module")
def narrow(pairs):
    return calibrate(posterior(0.5 * NOISE), *pairs, draws=400)


def test_weighted_draws_have_the_moments_of_the_posterior(right, pairs):
    mean, sd = right.moments()
    variance = 1 / (1 + 1 / NOISE**2)
    exact = pairs[1] * variance / NOISE**2
    assert right.effective > 100
    # For the few truths in the prior's tails the weights are uneven and the moments rough; levels stay exact.
    assert np.quantile(np.abs(mean - exact), 0.95) < 4 * np.sqrt(variance / 100)
    assert np.quantile(np.abs(sd / np.sqrt(variance) - 1), 0.95) < 0.3


@pytest.mark.parametrize("check", [sbc, coverage, lambda c: tarp(c, seed=1)], ids=["sbc", "coverage", "tarp"])
def test_a_right_posterior_passes_and_a_narrow_one_fails(check, right, narrow):
    assert check(right).verdict == "good", str(check(right))
    assert check(narrow).verdict == "bad", str(check(narrow))


def test_the_advice_names_the_direction(narrow):
    assert "too narrow" in sbc(narrow).advice
    assert "overconfident" in coverage(narrow).advice


def test_the_advice_says_the_p_value(narrow, right):
    for check in (sbc, coverage):
        assert f"(p = {short(check(narrow).numbers['p'])})" in check(narrow).advice
        assert "p =" not in check(right).advice


def test_levels_are_uniform_whatever_the_proposal():
    """Draws of a poor proposal, with weights: the levels stay exactly uniform, which plain ranks do not."""
    rng = np.random.default_rng(1)
    n, size = 3000, 5
    x = rng.normal(size=n) * np.sqrt(1 + NOISE**2)
    variance = 1 / (1 + 1 / NOISE**2)
    mean = x * variance / NOISE**2
    truth = mean + np.sqrt(variance) * rng.normal(size=n)
    wide = 3 * np.sqrt(variance)
    draws = mean[:, None] + 0.5 * wide + wide * rng.normal(size=(n, size))

    def log_weight(theta):
        target = -0.5 * (theta - mean[:, None]) ** 2 / variance
        return target + 0.5 * ((theta - mean[:, None] - 0.5 * wide) / wide) ** 2

    weights, own = log_weight(draws), log_weight(truth[:, None])[:, 0]
    parts = (("a",), truth[:, None], x[:, None], draws[..., None])
    weighted = Calibration(*parts, weights, own)
    plain = Calibration(*parts, np.zeros_like(weights), np.zeros_like(own))
    assert sbc(weighted).numbers["p"] > 0.001
    assert sbc(plain).numbers["p"] < 1e-6


@pytest.mark.parametrize(("model_sd", "verdict"), [(0.3, "good"), (0.2, "bad")])
def test_sharp_posteriors_of_many_parameters_are_found_by_their_modes(model_sd, verdict):
    """Draws of the prior never come near a posterior in twenty dimensions; Newton's method does."""
    prior = Prior.normal([0.0] * 20, [1.0] * 20)
    truth = np.asarray(prior.sample(100, seed=3))
    x = truth + 0.3 * np.random.default_rng(1).normal(size=truth.shape)
    calibration = calibrate(Posterior(prior, Normal(jnp.asarray(model_sd))), truth, x, draws=400)
    assert calibration.effective > 100
    mean, sd = calibration.moments()
    variance = 1 / (1 + 1 / model_sd**2)
    exact = x * variance / model_sd**2
    assert np.quantile(np.abs(mean - exact), 0.95) < 4 * np.sqrt(variance / 100)
    assert np.quantile(np.abs(sd / np.sqrt(variance) - 1), 0.95) < 0.3
    assert coverage(calibration).verdict == verdict


def test_two_modes_of_a_sharp_posterior_share_the_draws():
    """x = theta^2 with little noise: both signs of every parameter are as likely."""

    class Square(TractableLikelihood):
        def prepare(self, x):
            return x

        def log_likelihood(self, theta, w):
            return -0.5 * jnp.sum(((w - theta**2) / 0.05) ** 2)

    truth = np.abs(np.random.default_rng(2).normal(1.5, 0.2, size=(50, 1))).astype(np.float32)
    keys = jax.vmap(jax.random.key)(jnp.arange(50))
    prior, rows = Prior.normal([0.0], [1.0]), jnp.asarray(truth**2)[:, None]
    weighed = weigh_many(weigh_around_modes, prior, Square(), keys, jnp.asarray(truth), rows, 400)
    weights = np.exp(weighed.log_weight - np.max(weighed.log_weight, axis=1, keepdims=True))
    above = np.sum(weights * (weighed.theta[..., 0] > 0), axis=1) / weights.sum(axis=1)
    effective = weights.sum(axis=1) ** 2 / np.sum(weights**2, axis=1)
    found = (above > 0.02) & (above < 0.98)
    assert found.mean() > 0.7  # three starts all lie on one side in a quarter of the cases
    error = np.abs(above[found] - 0.5) / (0.5 / np.sqrt(effective[found]))
    assert np.mean(error**2) < 1 + 4 * np.sqrt(2 / found.sum()) + 1.0


def test_simulations_of_the_fit_never_make_a_good_verdict(right):
    flattered = Calibration(**{**vars(right), "in_sample": True})
    check = sbc(flattered)
    assert check.verdict == "doubtful"
    assert "--simulations" in check.advice


def evidence(rows: int = 120, **changes) -> FittedRun:
    rng = np.random.default_rng(5)
    theta = np.asarray(PRIOR.sample(rows, seed=1), float)
    x = theta + NOISE * rng.normal(size=theta.shape)
    values = np.array([0.3, -0.2]) + NOISE * rng.normal(size=(4, 200, 2))
    draws = Draws(values, ("a", "b"), np.array([[0.31, -0.21]]), 0, info={"acceptance": 0.3})
    return FittedRun(**{"posterior": posterior(NOISE), "draws": draws, "theta": theta, "x": x, **changes})


def test_every_check_that_applies_is_made_and_the_others_say_why(tmp_path):
    slow = {"grid", "short_run"}
    names = [entry.name for entry in CHECKS if entry.name not in slow]
    findings = run_checks(evidence(simulator=simulator, simulations=100), names)
    made = {check.name for check in findings.checks}
    simulated = {"predictive", "tail_rank", "posterior_sbc", "sbc", "coverage", "tarp", "local_c2st"}
    assert made == {"outlier", "sampler"} | simulated
    records = {"training", "information", "certificate", "rounds", "learned_normaliser", "inner_mixing", "validity"}
    others = {"nearest", "ensemble_agreement", "normaliser", "support", "region"} | records
    assert {one.name for one in findings.skipped} == others
    assert all(check.advice and check.verdict in ("good", "doubtful", "bad") for check in findings.checks)
    findings.save(tmp_path / "checks")
    again = Findings.load(tmp_path / "checks")
    assert again.plain() == findings.plain()
    np.testing.assert_array_equal(again.checks[-1].arrays["null"], findings.checks[-1].arrays["null"])


def test_without_a_simulator_calibration_is_in_sample_and_replicas_are_missing():
    found = evidence(rows=20)
    assert found.calibration.in_sample
    with pytest.raises(NotMade, match="--model"):
        _ = found.replicas


def test_a_dear_simulator_is_not_run_unasked():
    found = evidence(rows=20, simulator=simulator, seconds=10.0)
    assert found.calibration.in_sample
    with pytest.raises(NotMade, match="--simulations"):
        _ = found.replicas


@pytest.mark.parametrize("seconds", [0.0, 0.05])
def test_where_most_simulations_fail_more_are_made_if_they_are_quick(seconds):
    """One in twelve is valid: 500 leave 42 replicas, too few.  Twelve times as many leave 500, with an error of 22.

    600 simulations of 0.05 seconds are all that half a minute allows: then checks are still missing.
    """

    def fails(theta, rng):
        return theta + NOISE * rng.normal(size=2) if rng.uniform() < 1 / 12 else np.full(2, np.nan)

    values = np.array([0.3, -0.2]) + NOISE * np.random.default_rng(6).normal(size=(4, 1000, 2))
    draws = Draws(values, ("a", "b"), np.array([[0.31, -0.21]]), 0)
    found = evidence(rows=20, simulator=fails, seconds=seconds, draws=draws)
    if seconds:
        assert found.replica_pairs.valid.size == 500
        return
    # The share of valid ones is itself known to sqrt(12 / 500) = 15 % from the first 500.
    assert abs(found.replica_pairs.valid.sum() - 500) < 4 * 500 * 0.15
    assert len(found.replicas) == found.replica_pairs.valid.sum()


def test_wrong_requests_are_refused(pairs):
    with pytest.raises(InputError, match="rows of theta"):
        calibrate(posterior(NOISE), pairs[0][:3], pairs[1])
    with pytest.raises(InputError, match="among outlier"):
        run_checks(evidence(rows=20), ["clod"])
    with pytest.raises(InputError, match="densities"):
        coverage(Calibration.of_draws(np.zeros((30, 1)), np.zeros((30, 1)), np.zeros((30, 5, 1))))


def test_a_table_made_in_blocks_is_the_whole_table():
    rng = np.random.default_rng(5)
    theta, data = rng.normal(size=(7, 2)), rng.normal(size=(60, 1, 2))  # the third block is not full
    table = log_likelihood_table(Normal(jnp.asarray(0.5)), theta, data)
    expected = -0.5 * (((data - theta) / 0.5) ** 2).sum(axis=-1) - 2 * np.log(0.5)
    np.testing.assert_allclose(table, expected, rtol=1e-5, atol=1e-5)
