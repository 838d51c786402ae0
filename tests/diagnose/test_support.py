"""Likelihoods that end sharply: draws beyond the edge are seen, draws up to it are not."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from unle import Prior
from unle.diagnose import FittedRun
from unle.diagnose.calibration import Calibration
from unle.diagnose.observation import outlier
from unle.diagnose.support_check import Extremes, extreme_draws, residual_levels, sharp_ends, support
from unle.models import ConditionalGaussian, EnergyModel, Ensemble, NoCorrection, NoEnergy
from unle.posterior import Draws, Posterior
from unle.space import fit_theta_space, fit_x_space

POSTERIORS, DRAWS, HALF = 300, 500, 0.5
NOTHING = Extremes(0.0, 4000)


@pytest.fixture
def problem():
    """Return x = theta + U(-1/2, 1/2) in two dimensions, with a base that knows mean and variance."""
    rng = np.random.default_rng(0)
    theta = rng.uniform(-3, 3, size=(POSTERIORS, 2))
    x = theta + rng.uniform(-HALF, HALF, size=theta.shape)
    theta_space, x_space = fit_theta_space(theta), fit_x_space(x)
    of_theta, of_x = (
        (np.asarray(s.standardiser.mean), np.asarray(s.standardiser.scale)) for s in (theta_space, x_space)
    )
    parts = (of_theta[0] - of_x[0]) / of_x[1], np.diag(of_theta[1] / of_x[1]), np.diag(of_x[1] * np.sqrt(12))
    linear = (jnp.asarray(part, jnp.float32)[None] for part in parts)
    base = eqx.filter_vmap(lambda *linear: ConditionalGaussian(*linear, NoCorrection()))(*linear)
    return rng, theta, x, Ensemble(theta_space, x_space, EnergyModel(base, NoEnergy()), jnp.zeros(1))


def levels_of(problem, reach):
    """Return levels for posteriors that are uniform around x, as far as `reach`; 1/2 is right."""
    rng, theta, x, ensemble = problem
    draws = x[:, None] + rng.uniform(-reach, reach, size=(POSTERIORS, DRAWS, 2))
    return residual_levels(ensemble, Calibration.of_draws(theta, x, draws))


def test_draws_up_to_the_edge_are_right(problem):
    check = support([levels_of(problem, HALF)], NOTHING)
    assert check.verdict == "good", check


def test_draws_beyond_the_edge_are_seen(problem):
    found = levels_of(problem, 1.04 * HALF)  # 8 % of them lie beyond
    check = support([found], NOTHING)
    assert check.verdict == "bad", check
    assert "lie where the simulator would not produce such data" in check.advice
    assert found.levels.max() < 0.97


def test_an_observation_that_some_draws_could_not_have_made_is_seen(problem):
    rng, _, _, ensemble = problem
    x_o, verdicts = np.zeros((1, 2)), []
    for reach in (HALF, 1.06 * HALF):
        draws = x_o + rng.uniform(-reach, reach, size=(4000, 2))
        simulated = draws[:, None] + rng.uniform(-HALF, HALF, size=(4000, 1, 2))
        verdicts.append(
            support([levels_of(problem, HALF)], extreme_draws(ensemble, draws, x_o, draws, simulated)).verdict
        )
    assert verdicts == ["good", "doubtful"]


def test_observations_in_the_outermost_part_are_doubtful():
    simulated = np.random.default_rng(1).normal(size=(2000, 3))
    verdicts = [outlier(simulated, [0.3, value, -0.5]).verdict for value in (0.0, 1.5, 2.9)]
    assert verdicts == ["good", "good", "doubtful"]
    check = outlier(simulated, [0.3, 2.9, -0.5])
    assert "try SUNLE" in check.advice
    assert 0 < check.numbers["farther_out"] < 0.02


def test_an_observation_far_from_every_simulation_is_bad_and_says_how_far():
    simulated = np.random.default_rng(1).normal(size=(2000, 3))
    check = outlier(simulated, [0.3, 300.0, -0.5])
    assert check.verdict == "bad"
    assert check.numbers["distance"] == pytest.approx(300, rel=0.03)
    assert check.advice.startswith(f"x_o lies {check.numbers['distance']:.3g} standard deviations from its nearest")
    assert "check its units" in check.advice


NOISES = {
    "normal": lambda rng, size: rng.normal(size=size),
    "t": lambda rng, size: rng.standard_t(3, size=size),
    "laplace": lambda rng, size: rng.laplace(size=size),
    "log-normal": lambda rng, size: rng.lognormal(size=size),
    "gamma": lambda rng, size: rng.gamma(2.0, size=size),
    "triangular": lambda rng, size: rng.triangular(-1, 0, 1, size=size),
    "two peaks": lambda rng, size: np.where(rng.random(size) < 0.5, -2, 2) + 0.3 * rng.normal(size=size),
    "a small second peak": lambda rng, size: np.where(rng.random(size) < 0.1, 5, 0) + 0.3 * rng.normal(size=size),
}
SHARP = {
    "uniform": (lambda rng, size: rng.uniform(-1, 1, size=size), [False, True]),
    "exponential": (lambda rng, size: rng.exponential(size=size), [False]),
    "half-normal": (lambda rng, size: -np.abs(rng.normal(size=size)), [True]),
}
PLACES = np.array([0.0, 0.3, 0.8, 1.1])[:, None, None]  # draws of theta


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
@pytest.mark.parametrize("seed", range(3))
def test_noise_that_fades_has_no_sharp_end(noise, seed):
    assert not sharp_ends(PLACES + noise(np.random.default_rng(seed), (4, 1000, 2)))


@pytest.mark.parametrize(("noise", "ends"), SHARP.values(), ids=SHARP)
def test_noise_that_stops_is_found_where_it_does(noise, ends):
    found = sharp_ends(PLACES + noise(np.random.default_rng(0), (4, 1000, 2)))
    assert [(end.coordinate, end.upper) for end in found] == [(j, upper) for j in range(2) for upper in ends]


def test_a_wall_that_stays_does_no_harm():
    rng = np.random.default_rng(0)
    assert not sharp_ends((1 + PLACES) * rng.exponential(size=(4, 1000, 1)))
    shape = np.array([0.5, 0.4, 3.0, 0.3])[:, None, None]  # the third does not reach the wall at 1
    assert not sharp_ends(rng.beta(9.0, shape, size=(4, 1000, 1)))
    assert sharp_ends(PLACES + (1 + PLACES) * rng.exponential(size=(4, 1000, 1)))


SIMULATORS = {
    "uniform": (lambda theta, rng: theta + rng.uniform(-HALF, HALF, size=2), "doubtful"),
    "exponential": (lambda theta, rng: theta + rng.exponential(size=2), "doubtful"),
    "normal": (lambda theta, rng: theta + rng.normal(size=2), "good"),
    "log-normal": (lambda theta, rng: theta + rng.lognormal(size=2), "good"),
    "counts": (lambda theta, rng: rng.poisson(np.exp(theta)).astype(float), "good"),
    "rounded": (lambda theta, rng: np.round(theta + rng.uniform(-1, 1, size=2)), "good"),
}


@pytest.mark.parametrize(("simulator", "verdict"), SIMULATORS.values(), ids=SIMULATORS)
def test_posteriors_of_noise_with_sharp_ends_are_doubtful(problem, simulator, verdict):
    rng, theta, _, ensemble = problem
    x = np.stack([simulator(row, rng) for row in theta])
    likelihood = eqx.tree_at(lambda e: e.x_space, ensemble, fit_x_space(x))
    draws = Draws(rng.uniform(-1, 1, size=(2, 500, 2)), ("a", "b"), np.zeros((1, 2)), 0)
    posterior = Posterior(Prior.uniform(low=[-3, -3], high=[3, 3]), likelihood)
    evidence = FittedRun(posterior, draws, theta, x, simulator=simulator)
    check = support([levels_of(problem, HALF)], NOTHING, evidence.sharp_ends)
    assert check.verdict == verdict, check
    assert ("sharp end" in check.advice) == (verdict != "good")
    assert (check.numbers["sharp_ends"] > 0) == (verdict != "good")


def test_dear_simulations_are_not_made_to_look_for_sharp_ends(problem):
    _, theta, x, ensemble = problem
    draws = Draws(np.zeros((1, 10, 2)), ("a", "b"), np.zeros((1, 2)), 0)
    posterior = Posterior(Prior.uniform(low=[-3, -3], high=[3, 3]), ensemble)
    evidence = FittedRun(posterior, draws, theta, x, simulator=lambda theta, rng: 1 / 0, seconds=1.0)
    assert evidence.sharp_ends == []
    assert "take too long" in evidence.notes[0]


def test_counts_far_outside_are_bad_although_most_of_them_are_alike():
    rng = np.random.default_rng(0)
    counts = rng.binomial(8, rng.uniform(size=(1000, 1)) ** 3, size=(1000, 6)).astype(float)
    assert outlier(counts, [0.0, 1.0, 1.0, 2.0, 0.0, 1.0]).verdict == "good"
    assert outlier(counts, [0.0, 1.0, 3.0, 6.0, 7.0, 800.0]).verdict == "bad"
