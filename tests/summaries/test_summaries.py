"""Summaries of long data: given, selected and learned."""

import json
import warnings
from dataclasses import replace

import jax.random as jr
import numpy as np
import pytest
from numpyro import distributions as dist
from typer.testing import CliRunner

import unle
from unle.cli import app
from unle.diagnose import FittedRun, bayes_factor, run_checks
from unle.errors import InputError, UnleWarning
from unle.methods.summarised import with_summary
from unle.models import Coordinates, GivenSummary
from unle.posterior import Posterior
from unle.space import informative_coordinates
from unle.store.storable_classes import storable
from unle.train import EnergyTraining, GaussianTraining, LearnedSummary, fit_summary

QUICK = {"base": GaussianTraining(iterations=200), "training": EnergyTraining(iterations=20), "members": 1}
LENGTH = 40
POSITIVE = unle.Prior.uniform(low=[-2.0], high=[2.0], names=["scale"])


def scales(n, *, seed=0, length=LENGTH):
    """Simulate x ~ N(0, theta^2): the sign of theta is not told, its size is."""
    rng = np.random.default_rng(seed)
    theta = rng.uniform(-2, 2, size=(n, 1))
    return theta, theta * rng.normal(size=(n, length))


def normals(dim):
    """Return a prior of standard normals."""
    return unle.Prior(dist.Normal(np.zeros(dim), np.ones(dim)))


def uniform(high):
    """Return a uniform prior of one parameter around zero."""
    return unle.Prior.uniform(low=[-high], high=[high])


def exact_scale(x, n=4000, seed=0):
    """Draw from the posterior of `scales`, by a grid."""
    grid = np.linspace(-2, 2, 20_001)[:-1] + 1e-4
    logs = -x.size * np.log(np.abs(grid)) - 0.5 * np.sum(x**2) / grid**2
    return np.random.default_rng(seed).choice(grid, n, p=np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum())


@storable
def mean_and_sd(x):
    return [x.mean(), x.std()]


@pytest.fixture(scope="module")
def normal():
    prior = unle.Prior.uniform(low=[-2.0], high=[2.0])
    rng = np.random.default_rng(1)
    theta = rng.uniform(-2, 2, size=(400, 1))
    return prior, theta, theta + rng.normal(size=(400, LENGTH))


@pytest.fixture(scope="module")
def given(normal):
    prior, theta, x = normal
    return unle.AUNLE(prior, summary=mean_and_sd, **QUICK).fit((theta, x), seed=1)


@pytest.fixture(scope="module")
def learned():
    """A posterior by a learned summary of the symmetric simulator, and what the fit says of it."""
    records = []
    method = unle.AUNLE(POSITIVE, summary=LearnedSummary(iterations=400, width=32, network="set"), **QUICK)
    posterior = method.fit(scales(2000), seed=1, on_metrics=lambda **record: records.append(record))
    return posterior, next(record for record in records if record["stage"] == "summary")


def test_a_given_summary_is_a_fit_to_its_values(normal, given):
    prior, theta, x = normal
    by_hand = unle.AUNLE(prior, **QUICK).fit((theta, np.array([mean_and_sd(row) for row in x])), seed=1)
    x_o = x[0]
    own, other = given.sample(x_o, 500, seed=2), by_hand.sample(mean_and_sd(x_o), 500, seed=2)
    assert np.array_equal(np.asarray(own), np.asarray(other))
    assert own.x_o.shape == (1, LENGTH)  # the observation itself is kept
    assert np.array_equal(given.log_prob([0.3], x_o), by_hand.log_prob([0.3], mean_and_sd(x_o)))


def test_the_posterior_given_a_sufficient_summary_is_exact(normal, given):
    _, _, x = normal
    draws = np.asarray(given.sample(x[0], 2000, seed=2))
    assert abs(draws.mean() - x[0].mean()) < 0.1
    assert 0.7 < draws.std() * np.sqrt(LENGTH) < 1.4


def test_rows_of_an_observation_are_summarised_one_by_one(normal, given):
    _, _, x = normal
    one, two = given.sample(x[0], 2000, seed=2), given.sample(np.stack([x[0], x[0]]), 2000, seed=2)
    assert 0.5 < np.asarray(two).std() / np.asarray(one).std() < 0.9  # 1 / sqrt(2)


def test_a_symmetric_parameter_is_learned(learned):
    posterior, record = learned
    assert record["information"] > 1.0
    _, x = scales(3, seed=7)
    for row in x:
        draws, exact = np.asarray(posterior.sample(row, 4000, seed=2))[:, 0], exact_scale(row)
        assert 0.25 < np.mean(draws > 0) < 0.75
        assert abs(np.abs(draws).mean() - np.abs(exact).mean()) < 0.5 * np.abs(exact).std()
        assert 0.6 < np.abs(draws).std() / np.abs(exact).std() < 1.7


def test_posterior_means_alone_lose_a_symmetric_parameter():
    """The wrong twin: a regression of theta on x and its squares, whose best prediction is zero everywhere."""
    theta, x = scales(2000)
    features = np.column_stack([np.ones(len(x)), x, x**2, x**3])
    weights = np.linalg.lstsq(features, theta[:, 0], rcond=None)[0]

    def mean(row):
        return [weights @ np.concatenate([[1.0], row, row**2, row**3])]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnleWarning)
        posterior = unle.AUNLE(POSITIVE, summary=mean, **QUICK).fit((theta, x), seed=1)
    _, x = scales(3, seed=7)
    ratios = [
        np.abs(np.asarray(posterior.sample(row, 4000, seed=2))).std() / np.abs(exact_scale(row)).std() for row in x
    ]
    assert max(ratios) > 1.7  # what `test_a_symmetric_parameter_is_learned` asks is not met


def test_a_learned_summary_is_saved_with_the_posterior(learned, tmp_path):
    posterior, _ = learned
    posterior.save(tmp_path / "kept")
    again = Posterior.load(tmp_path / "kept")
    x_o = scales(1, seed=9)[1][0]
    assert np.array_equal(np.asarray(posterior.sample(x_o, 300, seed=2)), np.asarray(again.sample(x_o, 300, seed=2)))
    assert "s(x)" in repr(again)


def test_a_given_summary_is_saved_if_it_can_be_found_again(given, tmp_path):
    given.save(tmp_path / "kept")
    assert Posterior.load(tmp_path / "kept").summary.function is mean_and_sd
    nameless = replace(given, summary=GivenSummary(lambda x: [x.mean(), x.std()], LENGTH))
    with pytest.raises(InputError, match="storable"):
        nameless.save(tmp_path / "other")


def test_files_without_a_summary_are_still_read(given, tmp_path):
    given.without_summary().save(tmp_path / "old")
    file = tmp_path / "old.json"
    content = json.loads(file.read_text())
    assert content["tree"]["fields"].pop("summary") == {"value": None}
    file.write_text(json.dumps(content))
    assert Posterior.load(tmp_path / "old").summary is None


def test_the_order_of_simulations_does_not_matter():
    theta, x = scales(300)
    settings = LearnedSummary(iterations=100, width=16, network="vector", size=1)
    orders = np.arange(300), np.random.default_rng(0).permutation(300)
    one, other = (with_summary(settings, (theta[order], x[order]), POSITIVE, seed=1).summary(x) for order in orders)
    assert np.array_equal(one, other)


@pytest.mark.parametrize(
    ("x_o", "words"),
    [(np.full(LENGTH, np.nan), "NaN"), (np.r_[np.nan, np.zeros(LENGTH - 1)], "complete"), (np.zeros(3), "length 40")],
)
def test_observations_that_have_no_summary_are_refused(given, x_o, words):
    with pytest.raises(InputError, match=words):
        given.sample(x_o, 100)


def test_an_observation_far_outside_is_named_in_terms_of_the_summary(given):
    with pytest.warns(UnleWarning, match=r"summary of x_o.*outside the simulations"):
        given.log_prob([0.0], np.full(LENGTH, 30.0))


def test_settings_are_checked(normal):
    prior, theta, x = normal
    with pytest.raises(InputError, match="as `summary`"):
        unle.AUNLE(prior, summary="learned")
    with pytest.raises(InputError, match="vector, series, set"):
        LearnedSummary(network="images")
    with pytest.raises(InputError, match="at least one number"):
        LearnedSummary(size=0)
    with pytest.raises(InputError, match="whole rows of 7"):
        unle.AUNLE(prior, summary=LearnedSummary(row=7)).fit((theta, x))
    with pytest.raises(InputError, match="one vector of one length"):
        unle.AUNLE(prior, summary=lambda x: x[x > 0]).fit((theta, x))


def test_simulations_whose_summary_is_not_finite_are_invalid(normal, given):
    prior, theta, x = normal
    summary = GivenSummary(lambda x: [x.mean() if x[0] < 1.0 else np.nan, x.std()], LENGTH)
    made = with_summary(summary, (theta, x), prior, seed=0).simulations
    assert np.array_equal(made.valid, x[:, 0] < 1.0)
    assert "not finite" in made.summary()
    with pytest.raises(InputError, match="finite summary of x_o"):
        replace(given, summary=summary).sample(np.full(LENGTH, 1.5), 100)


def test_coordinates_that_say_nothing_are_found():
    rng = np.random.default_rng(0)
    theta, noise = rng.normal(size=(1000, 2)), rng.standard_t(2, size=(1000, 30))
    x = noise.copy()
    x[:, 3] += theta[:, 0]  # a mean
    x[:, 5] *= theta[:, 1]  # a scale, of a parameter whose sign is not told
    x[:, 7] += theta[:, 0] + noise[:, 11]  # 11 is the noise of 7, and says nothing by itself
    assert informative_coordinates(theta, x) == (3, 5, 7, 11)
    assert informative_coordinates(theta, noise) == ()


def test_few_coordinates_that_say_all_are_the_summary():
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(1000, 1))
    x = rng.normal(size=(1000, 30))
    x[:, [4, 9]] += theta
    fit = fit_summary(jr.key(0), normals(1), theta, x, LearnedSummary(iterations=300, width=32))
    assert isinstance(fit.summary, Coordinates)
    assert fit.summary.kept == (4, 9)
    assert fit.unseen.all()
    assert abs(fit.information - 0.5 * np.log(3)) < 0.15  # two readings of one number


@pytest.mark.slow
def test_what_only_a_pair_of_coordinates_tells_is_not_screened_away():
    """Signs of x_1 and of x_2 say nothing of theta, their product says all: no test of two variables sees it."""
    rng = np.random.default_rng(0)
    theta = rng.uniform(-1, 1, size=(3000, 1))
    x = rng.normal(size=(3000, 12))
    x[:, :1] = np.abs(x[:, :1]) * np.sign(x[:, 1:2]) * np.sign(theta)
    x[:, 2:3] += theta
    assert informative_coordinates(theta, x) == (2,)
    fit = fit_summary(jr.key(0), uniform(1.0), theta, x, LearnedSummary(iterations=1500, width=64))
    assert not isinstance(fit.summary, Coordinates)  # a network of all coordinates knew more
    assert fit.information > 0.3  # x_3 alone has 0.14


@pytest.mark.parametrize(("network", "row"), [pytest.param("series", 2, marks=pytest.mark.slow), ("set", 1)])
def test_series_and_sets_are_summarised(network, row):
    theta, x = scales(1000, length=64)
    settings = LearnedSummary(network=network, row=row, iterations=600, width=32, size=2)
    fit = fit_summary(jr.key(0), POSITIVE, theta, x, settings)
    assert fit.kind == network
    assert fit.information > 0.8  # of 2.0 that x has
    shuffled = x.reshape(len(x), -1, row)[:, ::-1].reshape(x.shape)
    is_same = np.allclose(fit.summary(x), fit.summary(shuffled), rtol=1e-3, atol=1e-3)
    assert is_same == (network == "set")


@pytest.mark.slow
def test_the_best_kind_of_network_is_chosen():
    """Products of neighbours say all: a vector network does not find it from so few simulations."""
    rng = np.random.default_rng(0)
    theta = rng.uniform(-0.9, 0.9, size=(1000, 1))
    x = rng.normal(size=(1000, 100))
    for i in range(1, 100):
        x[:, i] = theta[:, 0] * x[:, i - 1] + np.sqrt(1 - theta[:, 0] ** 2) * x[:, i]
    fit = fit_summary(jr.key(0), uniform(0.9), theta, x, LearnedSummary(iterations=400, width=32))
    assert fit.kind == "series"
    assert fit.information > 1.3


def test_what_is_lost_is_estimated():
    """One number cannot hold two parameters; two can."""
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(2000, 2))
    x = np.repeat(theta, 6, axis=1) + rng.normal(size=(2000, 12))
    short, enough = (
        fit_summary(
            jr.key(0), normals(2), theta, x, LearnedSummary(size=size, network="vector", iterations=800, width=32)
        )
        for size in (1, 2)
    )
    assert short.lost > 0.5
    assert short.lost > 5 * short.lost_error
    assert abs(enough.lost) < 0.1
    assert f"{short.lost:+.2f}" in short.sentence


def test_a_summary_that_over_fits_is_not_used_on_its_own_rows():
    rng = np.random.default_rng(0)
    theta, x = rng.normal(size=(300, 2)), rng.normal(size=(300, 60))
    x[:, :40] += 0.5 * theta[:, :1]
    x[:, 20:] += 0.5 * theta[:, 1:]
    fit = fit_summary(
        jr.key(0),
        normals(2),
        theta,
        x,
        LearnedSummary(network="vector", size=2, iterations=300, weight_decay=0.0, width=64),
    )
    assert fit.overfit > 0.1
    assert fit.unseen.sum() == 150
    assert "it has not seen" in fit.sentence


def test_checks_are_made_in_terms_of_the_summary(normal, given):
    """Coverage of a right summary is good; that of a posterior that takes one summary for another is bad."""
    _, theta, x = normal

    def simulator(theta, rng):
        return theta + rng.normal(size=LENGTH)

    def checked(posterior, x_o):
        draws = posterior.sample(x_o, 1000, seed=2)
        run = FittedRun(posterior, draws, theta, x, simulator=simulator, simulations=100)
        findings = run_checks(run, ["outlier", "coverage", "predictive"])
        assert not [one.reason for one in findings.skipped]
        assert "terms of the summary" in " ".join(findings.notes)
        return {one.name: one.verdict for one in findings.checks}

    assert set(checked(given, x[0]).values()) == {"good"}
    shifted = replace(given, summary=GivenSummary(lambda x: [x.mean() + 1.0, x.std()], LENGTH))
    assert checked(shifted, x[0])["coverage"] == "bad"


def test_a_model_of_a_summary_has_no_evidence_of_x(normal, given):
    draws = given.sample(normal[2][0], 300, seed=2)
    with pytest.raises(InputError, match="model of a summary"):
        bayes_factor((given, draws), (given, draws))


def test_rounds_learn_the_summary_once():
    x_o = scales(1, seed=9)[1][0]
    summary = LearnedSummary(iterations=50, width=16, network="set")
    sunle = unle.SUNLE(POSITIVE, summary=summary, **QUICK)
    state, seen = sunle.begin(x_o, budget=900, rounds=[600, 300]).with_simulations(scales(600))
    again, seen_again = state.with_simulations(scales(300, seed=1))
    assert again.summary is state.summary
    assert again.raw.x.shape == (900, LENGTH)
    assert seen.x.shape[1] == seen_again.x.shape[1] == again.x_o.shape[1] < LENGTH
    assert np.allclose(again.x_o, state.summary(x_o[None]))
    with pytest.raises(InputError, match="finite summary"):
        sunle.begin(np.full(LENGTH, np.nan), budget=600, rounds=[300, 300]).with_simulations(scales(300))


@pytest.mark.slow
def test_rounds_with_a_learned_summary_find_the_posterior():
    def simulator(theta, rng):
        return theta * rng.normal(size=LENGTH)

    x_o = scales(1, seed=9)[1][0]
    records = []
    summary = LearnedSummary(iterations=400, width=32, network="set")
    sunle = unle.SUNLE(POSITIVE, simulator, summary=summary, **QUICK)
    run = sunle.run(x_o, budget=900, rounds=[600, 300], seed=1, on_metrics=lambda **record: records.append(record))
    assert sum(record["stage"] == "summary" for record in records) == 1
    assert run.simulations.x.shape == (900, LENGTH)
    draws, exact = np.asarray(run.posterior.sample(x_o, 4000, seed=2))[:, 0], exact_scale(x_o)
    assert 0.5 < np.abs(draws).std() / np.abs(exact).std() < 2.0


MODEL = """
import numpy as np, unle
prior = unle.Prior.uniform(low=[-1.0], high=[1.0])
def simulator(theta, rng):
    x = rng.normal(size=20)
    x[3] += 5 * theta[0]
    return x
x_o = np.zeros(20)
"""


def test_the_command_line_learns_a_summary(tmp_path, monkeypatch):
    monkeypatch.setattr("unle.diagnose.default_checks", lambda run, keep_in: run_checks(run, ["outlier", "sampler"]))
    (tmp_path / "model.py").write_text(MODEL)
    out = tmp_path / "run"
    command = ["run", str(tmp_path / "model.py"), "--budget", "300", "--iterations", "100", "--members", "1", "--out"]
    result = CliRunner().invoke(app, [*command, str(out), "--summary", "learned", "--draws", "500"])
    assert result.exit_code == 0, result.output
    assert "verdict:" in result.output
    assert isinstance(Posterior.load(out / "rounds" / "00" / "likelihood").summary, Coordinates)
    assert "numbers of its coordinates for the 20 of x" in " ".join((out / "report.html").read_text().split())
    refused = CliRunner().invoke(app, [*command, str(out), "--summary", "mine"])
    assert refused.exit_code != 0
    assert "expected --summary learned" in refused.output
    other = CliRunner().invoke(app, [*command, str(tmp_path / "nle"), "--summary", "learned", "--method", "nle"])
    assert "expected --summary with --method aunle or sunle" in other.output
