"""Likelihoods that end sharply: draws beyond the edge are seen, draws up to it are not."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from unle.diagnose.calibration import Calibration
from unle.diagnose.cloud import cloud
from unle.diagnose.support import Extremes, extreme_draws, residual_levels, support
from unle.models import ConditionalGaussian, Ensemble, NoEnergy, Straight, TiltedModel
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
    base = eqx.filter_vmap(lambda *linear: ConditionalGaussian(*linear, Straight()))(*linear)
    return rng, theta, x, Ensemble(theta_space, x_space, TiltedModel(base, NoEnergy()), jnp.zeros(1))


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
    verdicts = [cloud(simulated, [0.3, value, -0.5]).verdict for value in (0.0, 1.5, 2.9)]
    assert verdicts == ["good", "good", "doubtful"]
    check = cloud(simulated, [0.3, 2.9, -0.5])
    assert "try SUNLE" in check.advice
    assert 0 < check.numbers["farther_out"] < 0.02
