"""The adversary's benchmark: exact posteriors are exact, rows last, and a wrong posterior is called wrong."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from typer.testing import CliRunner

from unle.cli import app
from unle.errors import InputError, StoreError
from unle.simulators import simulate_at
from unle_bench.adversary import ADVERSARIES, OBSERVATIONS, distances
from unle_bench.adversary import exact as exact_room
from unle_bench.adversary import trials as trials_room
from unle_bench.adversary.distances import is_wrong, kolmogorov, measures
from unle_bench.adversary.exact import ByFactors, Conjugate
from unle_bench.adversary.priors import Box, LogNormals, LogUniforms, Normals
from unle_bench.adversary.rows import append_row, as_csv, by_simulator, line_of, read_rows, totals
from unle_bench.adversary.simulators import epidemic
from unle_bench.adversary.trials import Fitted, Trial, finished, run_adversary, run_trial, trials

FILTERED = "epidemic"  # its likelihood is estimated; it has tests of its own
NAMES = [name for name in ADVERSARIES if name != FILTERED]
QUANTILE = 5.0  # of a standard normal; about four hundred z-scores are looked at
FARTHEST = 2.6  # sqrt(n) times a Kolmogorov distance: 3e-6 of all samples of one law exceed it
PAGE = Path(__file__).parents[2] / "docs" / "adversary.md"


# The simulators


def test_there_are_enough_of_them_and_the_page_names_each():
    assert len(ADVERSARIES) >= 42
    page = PAGE.read_text()
    assert [name for name in ADVERSARIES if f"`{name}`" not in page] == []
    assert {one.simulations for one in ADVERSARIES.values()} >= {100, 200, 2000, 10_000}


@pytest.mark.parametrize("name", ADVERSARIES)
def test_observations_are_three_always_the_same_and_possible(name):
    one = ADVERSARIES[name]
    again = replace(one).observations
    assert tuple(one.observations) == OBSERVATIONS
    for key, x in one.observations.items():
        assert np.isfinite(x).all()
        assert np.array_equal(x, again[key])


@pytest.mark.parametrize(
    "prior",
    [
        Box((-1.0, 2.0), (1.0, 5.0)),
        Normals((1.0, 2.0), 0.6),
        LogNormals((0.1, -1.0), (0.5, 1.0)),
        LogUniforms((1e-6, 1.0), (1e-2, 1e4)),
    ],
)
def test_priors_are_those_that_methods_see(prior):
    theta, same = prior.draw(2000, np.random.default_rng(0)), prior.for_methods()
    difference = np.asarray(same.log_prob(theta)) - prior.log_density(theta)
    assert np.ptp(difference) < 1e-3  # equal up to a constant
    theirs = same.sample(2000, seed=1)
    assert all(
        kolmogorov(a, b) * np.sqrt(1000) < FARTHEST for a, b in zip(theta.T, theirs.T.astype(float), strict=True)
    )
    assert np.allclose(prior.to_theta(prior.to_z(theta)), theta)


# Exact posteriors: the likelihood against the simulator, then the draws against the likelihood


@pytest.fixture(autouse=True)
def _fewer_particles(monkeypatch):
    monkeypatch.setattr(exact_room, "PARTICLES", 4000)
    monkeypatch.setattr(exact_room, "LAST_MOVES", 30)


def observation_for(one):
    return "typical" if isinstance(one.solution, ByFactors) else "edge"


@cache
def exact_of(name):
    """Return an exact posterior, solved once for all tests."""
    return ADVERSARIES[name].exact(observation_for(ADVERSARIES[name]))


def guessing_scores(one, log_likelihood, *, sets=80, size=40, seed=0):
    """Return z-scores that are standard normal if the likelihood is the simulator's.

    Of forty theta one is chosen at random, and x is simulated there. Given x it was theta_j with probability
    w_j = p(x | theta_j) / sum_k p(x | theta_k), whatever the forty are. So E[f_true - sum_j w_j f_j] = 0, exactly, for
    any f: here w, log w, theta, and the square of its distance from the mean under w.
    """
    rng = np.random.default_rng(seed)
    sd = exact_of(one.name).sd
    centres = one.prior.draw(sets, rng)
    widths = rng.choice([1.0, 4.0], size=(sets, 1, 1)) * sd
    theta = centres[:, None] + widths * rng.normal(size=(sets, size, one.prior.dim))
    inside = np.isfinite(one.prior.log_density(theta.reshape(-1, one.prior.dim))).reshape(sets, size, 1)
    theta = np.where(inside, theta, centres[:, None])
    true = rng.integers(size, size=sets)
    x = one.simulate(theta[np.arange(sets), true], rng)
    gaps = []
    for k in np.flatnonzero(np.isfinite(x).all(axis=1)):
        logs = log_likelihood(theta[k], x[k])
        weights = np.exp(logs - logs.max())
        weights /= weights.sum()
        place = (theta[k] - centres[k]) / widths[k]
        about = (place - weights @ place) ** 2
        logs = np.maximum(logs - logs.max(), -20.0)  # where the weight is zero, the log would count for too much
        values = np.column_stack([weights, logs, place, about])
        gaps.append(values[true[k]] - weights @ values)
    gaps = np.array(gaps)
    return gaps.mean(axis=0) / np.maximum(gaps.std(axis=0), 1e-12) * np.sqrt(len(gaps))


@pytest.mark.parametrize("name", NAMES)
def test_the_likelihood_is_that_of_the_simulator(name):
    one = ADVERSARIES[name]
    assert np.abs(guessing_scores(one, one.solution.log_likelihood)).max() < QUANTILE


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("square", ADVERSARIES["absolute"].solution.log_likelihood),
        ("student_1", lambda theta, x: -0.5 * ((x[0] - theta[:, 0]) / 0.1) ** 2),
        ("wedge", lambda theta, x: -0.5 * np.sum(((x - theta) / 0.5) ** 2, axis=1)),
    ],
)
def test_another_likelihood_is_refused(name, wrong):
    assert np.abs(guessing_scores(ADVERSARIES[name], wrong, sets=400)).max() > QUANTILE


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_likelihood_is_that_of_the_simulator_as_thousands_of_data_see_it(name):
    one = ADVERSARIES[name]
    assert np.abs(guessing_scores(one, one.solution.log_likelihood, sets=4000, size=20)).max() < QUANTILE


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("student_1", ADVERSARIES["contaminated_1"].solution.log_likelihood),
        ("fails_upwards", lambda theta, x: -2 * (x[0] - theta[:, 0]) ** 2),  # without the probability of failure
    ],
)
def test_thousands_of_data_refuse_a_likelihood_that_is_nearly_right(name, wrong):
    assert np.abs(guessing_scores(ADVERSARIES[name], wrong, sets=4000, size=20)).max() > QUANTILE


def weighted_distance(exact_draws, values, log_weights):
    """Return sqrt(n) times the Kolmogorov distance between draws and weighted values, n being the effective size."""
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    size = 1 / np.sum(weights**2)
    assert size > 200
    order = np.argsort(values)
    below = np.searchsorted(np.sort(exact_draws), values[order], side="right") / len(exact_draws)
    largest = np.abs(np.cumsum(weights[order]) - below)[np.append(np.diff(values[order]) > 0, True)].max()
    return largest * np.sqrt(1 / (1 / size + 1 / len(exact_draws)))


def proposals(one, exact, n, rng):
    """Draw half from the prior and half widely around the exact draws; return them and their log density."""
    mean, covariance = exact.mean, np.atleast_2d(np.cov(exact.draws(2000, seed=3).T))
    wide = 2.0 * np.linalg.cholesky(covariance)
    near = mean + rng.normal(size=(n, len(mean))) @ wide.T
    theta = np.concatenate([near, one.prior.draw(n, rng)])
    standard = np.linalg.solve(wide, (theta - mean).T)
    log_near = -0.5 * np.sum(standard**2, axis=0) - np.log(np.diag(wide)).sum() - len(mean) / 2 * np.log(2 * np.pi)
    if isinstance(one.prior, Box | LogUniforms):  # uniform in theta, or in log theta
        log_prior = one.prior.log_density(theta) - np.log(one.prior.high - one.prior.low).sum()
    else:
        log_prior = multivariate_normal.logpdf(theta, cov=one.prior.covariance)
    return theta, np.logaddexp(log_near, log_prior)


@pytest.mark.parametrize("name", NAMES)
def test_exact_draws_agree_with_importance_sampling(name):
    one, rng = ADVERSARIES[name], np.random.default_rng(7)
    x, exact = one.observations[observation_for(one)], exact_of(name)
    draws = exact.draws(4000, seed=2)

    def log_posterior(theta):
        return one.prior.log_density(theta) + one.solution.log_likelihood_of_rows(theta, x)

    if isinstance(one.solution, Conjugate) and one.prior.dim > 4:  # too many parameters for weights: least squares
        a, b = one.solution.matrix / one.solution.sd, x / one.solution.sd
        ridge = np.linalg.lstsq(
            np.vstack([a, np.eye(one.prior.dim)]), np.append(b, np.zeros(one.prior.dim)), rcond=None
        )
        errors = (draws.mean(axis=0) - ridge[0]) / (draws.std(axis=0) / np.sqrt(len(draws)))
        assert np.abs(errors).max() < QUANTILE
        assert np.allclose(exact.sd**2, np.diag(np.linalg.inv(a.T @ a + np.eye(one.prior.dim))), rtol=0.05)
        return
    if isinstance(one.solution, ByFactors):  # one coordinate after the other, the rest anywhere that is possible
        for i in range(min(one.prior.dim, 2)):
            low, high = one.prior.low[i], one.prior.high[i]
            middle, sd = exact.mean[i], exact.sd[i]
            low, high = max(low, middle - 12 * sd), min(high, middle + 12 * sd)
            theta = np.tile(draws[0], (20_000, 1))
            theta[:, i] = rng.uniform(low, high, size=len(theta))
            assert weighted_distance(draws[:, i], theta[:, i], log_posterior(theta)) < FARTHEST
        return
    theta, log_proposal = proposals(one, exact, 15_000 if one.prior.dim < 5 else 60_000, rng)
    inside = np.isfinite(one.prior.log_density(theta))
    theta, log_proposal = theta[inside], log_proposal[inside]
    log_weights = log_posterior(theta) - log_proposal
    for i in range(one.prior.dim):
        assert weighted_distance(draws[:, i], theta[:, i], log_weights) < FARTHEST


def test_draws_of_another_posterior_disagree():
    one = ADVERSARIES["student_1"]
    draws, theta = one.exact("typical").draws(4000, seed=2), np.random.default_rng(0).uniform(-3, 3, size=(20_000, 1))
    log_weights = one.solution.log_likelihood(theta, one.observations["typical"])
    assert weighted_distance(draws[:, 0] + 0.1, theta[:, 0], log_weights) > FARTHEST


@pytest.mark.parametrize("name", ["student_2", "uniform_width", "correlated_prior", "corner", "uninformative"])
def test_one_exact_draw_in_a_thousand_lies_outside_the_region(name):
    exact = ADVERSARIES[name].exact("tail")
    assert exact.outside(exact.draws(20_000, seed=9)).mean() < 0.003
    away = exact.mean + 12 * exact.sd
    assert exact.outside(np.tile(away, (10, 1))).all()


@pytest.mark.parametrize("weeks", [2])
def test_the_filter_of_the_epidemic_estimates_probabilities(weeks):
    theta = np.array([[0.5, 0.2]])
    rng = np.random.default_rng(0)
    often, times = np.unique(epidemic.epidemic(np.tile(theta, (4000, 1)), rng)[:, :weeks], axis=0, return_counts=True)
    x = often[np.argmax(times)]
    seen = epidemic.epidemic(np.tile(theta, (20_000, 1)), rng)[:, :weeks]  # others than those that chose x
    share = np.mean((seen == x).all(axis=1))
    error = np.sqrt(share / len(seen))
    estimates = np.exp(epidemic.estimate_log_likelihood(np.tile(theta, (40, 1)), x, rng, particles=200))
    together = np.hypot(error, estimates.std() / np.sqrt(len(estimates)))
    assert share > 0
    assert abs(estimates.mean() - share) < QUANTILE * together


@pytest.mark.slow
@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_the_polynomial_of_the_epidemic_follows_fresh_estimates(observation):
    one = ADVERSARIES[FILTERED]
    x = one.observations[observation]
    theta = one.exact(observation).draws(60, seed=5)
    fresh = epidemic.estimate_log_likelihood(theta, x, np.random.default_rng(1), particles=4000)
    gaps = fresh - one.solution.log_likelihood(theta, x)
    assert np.std(gaps) < 0.35  # most of it the noise of the fresh estimates; a constant does not matter
    # and no trend over the posterior: a slope of .1 would move a mean by a tenth of its standard deviation
    z = np.log(theta) - np.log(theta).mean(axis=0)
    standard = np.linalg.solve(np.linalg.cholesky(np.cov(z.T)), z.T).T
    slopes = np.linalg.lstsq(np.column_stack([np.ones(60), standard]), gaps, rcond=None)[0][1:]
    assert np.abs(slopes).max() < 0.1 + 4 * np.std(gaps) / np.sqrt(60)


# What is wrong


@pytest.fixture
def no_classifier(monkeypatch):
    """Training classifiers takes seconds: an answer that depends on the difference of the means."""
    monkeypatch.setattr(
        distances, "c2st_fast", lambda a, b, **_: 0.5 + 0.5 * float(np.tanh(np.abs(a.mean(0) - b.mean(0)).max()))
    )


@pytest.mark.slow
def test_the_classifier_tells_a_right_posterior_from_a_wrong_one():
    exact = ADVERSARIES["student_1"].exact("typical")
    right = exact.draws(4000, seed=5)
    assert not is_wrong(measures(exact, right))
    shifted = measures(exact, np.clip(right - 4 * exact.sd, -3, 3))
    assert is_wrong(shifted)
    assert shifted["c2st"] > 0.8


def test_each_measure_can_make_a_posterior_wrong(no_classifier):
    exact = ADVERSARIES["banana"].exact("typical")
    right = exact.draws(4000, seed=5)
    numbers = measures(exact, right)
    assert not is_wrong(numbers)
    assert numbers["outside"] < 0.005
    assert numbers["kolmogorov"] < 0.05
    narrow = measures(exact, exact.mean + 0.4 * (right - exact.mean))
    assert narrow["sd_ratio"] == pytest.approx(2.5, rel=0.05)
    assert is_wrong(narrow)
    stray = right.copy()
    stray[::10] = -1.9  # one draw in ten elsewhere
    assert measures(exact, stray)["outside"] == pytest.approx(0.1, abs=0.01)
    assert is_wrong(measures(exact, stray))
    constant = measures(exact, np.tile(exact.mean, (4000, 1)))
    assert constant["sd_ratio"] > 1e6


# Rows


def fake(monkeypatch, *, verdict="good", shift=0.0, calls=None):
    """Stand in for methods: exact draws, moved by some standard deviations, and checks with a given verdict."""

    def fit_and_draw(one, wanted):
        if calls is not None:
            calls.append(wanted)
        if wanted.simulator == "counts":
            raise ValueError("no\nluck")
        exact = one.exact(wanted.observation)
        draws = exact.draws(2000, seed=wanted.seed) + shift * exact.sd
        rows = simulate_at(one.simulator(), one.prior.draw(50, np.random.default_rng(0)))
        said = [{"stage": "fitted", "energy": "full", "base": "gaussian", "log_z": [0.0]}]
        fitted = object.__new__(Fitted)  # whose fields would have to be a real posterior and its draws
        for name, value in {"draws": draws, "simulations": rows, "metrics": said}.items():
            object.__setattr__(fitted, name, value)
        return fitted

    findings = SimpleNamespace(verdict=verdict, reasons=("none",), checks=())
    monkeypatch.setattr(trials_room, "fit_and_draw", fit_and_draw)
    monkeypatch.setattr(trials_room, "checks_after_a_run", lambda *_: findings)


def test_a_row_says_what_happened_and_survives_its_file(monkeypatch, tmp_path, no_classifier):
    fake(monkeypatch, shift=6.0)
    row = run_trial(Trial("uniform_noise", "aunle", 1))
    assert (row["observation"], row["energy"], row["base"], row["verdict"]) == ("tail", "full", "gaussian", "good")
    assert row["wrong"]
    assert row["false_assurance"]
    assert {"date", "version", "commit", "seconds", "seed", *distances.MEASURES} <= set(row)
    append_row(tmp_path / "rows.jsonl", row)
    assert read_rows(tmp_path / "rows.jsonl") == [row]
    assert as_csv([row]).count("\n") == 2
    assert "false assurance" in line_of(row)


def test_a_right_posterior_and_a_warned_one_are_no_false_assurance(monkeypatch, no_classifier):
    fake(monkeypatch)
    assert not run_trial(Trial("student_1", "aunle", 0))["wrong"]
    fake(monkeypatch, shift=6.0, verdict="bad")
    warned = run_trial(Trial("student_1", "aunle", 0))
    assert warned["wrong"]
    assert not warned["false_assurance"]


def test_draws_that_are_not_finite_are_wrong(monkeypatch):
    fake(monkeypatch, shift=np.nan)
    row = run_trial(Trial("student_1", "sunle", 0))
    assert row["wrong"]
    assert row["not_finite"] == 2000
    assert "not finite" in line_of(row)


def test_checks_that_fail_leave_the_scores(monkeypatch, no_classifier):
    fake(monkeypatch)

    def broken(*_):
        raise RuntimeError("no checks today")

    monkeypatch.setattr(trials_room, "checks_after_a_run", broken)
    row = run_trial(Trial("student_1", "aunle", 0))
    assert row["verdict"] == trials_room.NO_VERDICT
    assert not row["wrong"]


def test_a_second_call_does_what_is_missing_and_failures_are_rows(monkeypatch, tmp_path, no_classifier):
    calls = []
    fake(monkeypatch, calls=calls)
    path, told = tmp_path / "new" / "rows.jsonl", []
    wanted = trials(("student_1", "counts"), ("aunle",), (0, 1))
    rows = run_adversary(wanted, path, on_row=told.append)
    assert len(rows) == len(told) == len(calls) == 4
    failed = [row for row in rows if row["simulator"] == "counts"]
    assert [row["outcome"] for row in failed] == ["ValueError: no luck"] * 2
    assert [row["wrong"] for row in failed] == [None, None]
    run_adversary(wanted, path)
    assert len(calls) == 4
    rows = run_adversary([*wanted, *trials(("student_2",), ("aunle",), (0,))], path)
    assert len(calls) == 5
    assert len(rows) == 5
    lines = by_simulator(rows)
    assert [line[0] for line in lines] == ["student_1", "student_2", "counts"]
    assert totals(rows)[0].startswith("aunle: 5 runs, 2 failed, 0 wrong")


def test_a_torn_line_is_run_again_and_a_damaged_one_refused(monkeypatch, tmp_path, no_classifier):
    calls = []
    fake(monkeypatch, calls=calls)
    path = tmp_path / "rows.jsonl"
    wanted = trials(("student_1",), ("aunle",), (0, 1))
    run_adversary(wanted, path)
    path.write_text(path.read_text()[:-20])
    assert len(run_adversary(wanted, path)) == 2
    assert len(calls) == 3
    assert all(json.loads(line) for line in path.read_text().splitlines())
    path.write_text("nonsense\n" + path.read_text())
    with pytest.raises(StoreError, match="damaged in line 1"):
        read_rows(path)


def test_work_is_a_list_of_independent_trials():
    everything = trials()
    assert len(everything) == len(set(everything)) == len(ADVERSARIES) * 2 * 3
    assert {one.observation for one in everything} == set(OBSERVATIONS)
    groups = trials_room._groups(everything)
    assert sum(map(len, groups)) == len(everything)
    with pytest.raises(InputError, match="expected a simulator among"):
        trials(("nobody",))
    with pytest.raises(InputError, match="expected a method among"):
        trials((), ("nobody",))


def test_a_death_is_a_row(monkeypatch, tmp_path):
    monkeypatch.setattr(trials_room, "_in_pool", lambda *_: False)
    rows = run_adversary(trials(("student_1",), ("aunle",), (0, 1)), tmp_path / "rows.jsonl", jobs=2)
    assert [row["outcome"] for row in rows] == [trials_room.DIED] * 2


# The command


def test_the_command_lists_shows_and_refuses(tmp_path):
    runner = CliRunner()
    listed = runner.invoke(app, ["adversary", "--list"])
    assert "student_1" in listed.output
    row = finished(
        dict(zip(trials_room.KEY, ("student_1", "aunle", 0, "typical"), strict=True))
        | {
            "outcome": "ok",
            "verdict": "good",
            "c2st": 0.9,
            "sd_ratio": 1.0,
            "shift": 0.0,
            "kolmogorov": 0.1,
            "outside": 0,
        }
    )
    append_row(tmp_path / "rows.jsonl", row)
    where = ["--out", str(tmp_path / "rows.jsonl")]
    shown = runner.invoke(app, ["adversary", "--show", *where, "--write", str(tmp_path / "rows.csv")])
    assert "1 wrong, 1 of these with false assurance" in shown.output
    assert (tmp_path / "rows.csv").read_text().startswith("simulator,method,seed")
    refused = runner.invoke(app, ["adversary", "--only", "nobody", *where])
    assert refused.exit_code == 1


@pytest.mark.slow
def test_two_processes_run_side_by_side(tmp_path):
    wanted = trials(("hundred", "uninformative"), ("aunle",), (0,))
    rows = run_adversary(wanted, tmp_path / "rows.jsonl", jobs=2)
    assert [row["outcome"] for row in rows] == ["ok", "ok"]
    assert all(row["verdict"] in ("good", "doubtful", "bad") for row in rows)
