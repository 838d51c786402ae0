"""Posteriors against exact answers: a linear Gaussian for every sampler, walls, and two modes.

Islands of tempered SMC are independent, so their spread gives the standard error; chains are judged by their effective
sample size.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.diagnostics import effective_sample_size
from jax.scipy.special import logsumexp
from jax.scipy.stats import norm
from jaxtyping import Array, Float
from scipy.stats import multivariate_normal, truncnorm

from unle.models import ConditionalGaussian, EnergyLikelihood, EnergyModel, NoCorrection, NoEnergy, TractableLikelihood
from unle.posterior import Chains, Posterior, TemperedSmc
from unle.samplers import Hmc, Mala, Nuts, RandomWalk
from unle.space import Prior, fit_theta_space, fit_x_space

Z = 4.0  # for chains: false alarms 6e-5 per comparison
Z_ISLANDS = 4.5  # Student's t with 15 degrees of freedom: 4e-4
ISLANDS, ROWS = 16, 4

SLOPE = np.array([[1.0, 0.5], [0.0, 2.0]])  # w = theta @ SLOPE + INTERCEPT + noise
INTERCEPT = np.array([0.5, -1.0])
ROOT = np.array([[0.8, 0.0], [0.6, 1.5]])
MEAN, SD = np.array([0.5, -1.0]), np.array([1.0, 0.5])
OBSERVED = [
    np.array([[1.2, 0.1], [2.0, 1.4], [0.3, -0.9], [1.6, 2.0]]),
    np.array([[-1.0, -3.0], [0.5, -4.0], [-0.4, -2.0], [-1.5, -6.0]]),
]
# sampler -> draws asked for
CHAINS = {
    "nuts": Chains(Nuts(max_doublings=4), chains=40, warm_up=100),
    "hmc": Chains(Hmc(), chains=40, warm_up=100),
    "mala": Chains(Mala(), chains=40, warm_up=100, thin=3),
    "random walk": Chains(RandomWalk(), chains=40, warm_up=100, thin=5),
}


@pytest.fixture(scope="module")
def posterior():
    corners = np.array([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])
    identity = fit_theta_space(corners), fit_x_space(100 * corners)
    base = ConditionalGaussian(
        *(jnp.asarray(part, jnp.float32) for part in (INTERCEPT / 100, SLOPE / 100, np.linalg.inv(ROOT / 100))),
        NoCorrection(),
    )
    likelihood = EnergyLikelihood(*identity, EnergyModel(base, NoEnergy()), jnp.zeros(()))
    return Posterior(Prior.normal(MEAN, SD), likelihood)


def exact(rows):
    """Return mean and covariance of theta, and the log evidence of w = x / 100."""
    weighted = SLOPE @ np.linalg.inv(ROOT @ ROOT.T)
    covariance = np.linalg.inv(np.diag(SD**-2) + len(rows) * weighted @ SLOPE.T)
    mean = covariance @ (MEAN / SD**2 + weighted @ (rows - INTERCEPT).sum(0))
    shared = SLOPE.T @ np.diag(SD**2) @ SLOPE
    all_rows = np.kron(np.eye(len(rows)), ROOT @ ROOT.T) + np.kron(np.ones((len(rows), len(rows))), shared)
    evidence = multivariate_normal.logpdf(rows.ravel(), np.tile(INTERCEPT + MEAN @ SLOPE, len(rows)), all_rows)
    return mean, covariance, evidence + rows.size * np.log(100)


def white(draws, rows):
    """Return draws, standardised by the exact posterior, with their squares and their product."""
    mean, covariance, _ = exact(rows)
    z = (np.asarray(draws.values, float) - mean) @ np.linalg.inv(np.linalg.cholesky(covariance)).T
    return np.concatenate([z, z**2, z[..., :1] * z[..., 1:]], axis=-1)


WHITE = np.array([0.0, 0.0, 1.0, 1.0, 0.0])


def island_scores(per_island, truth):
    per_island = np.asarray(per_island, float)
    return (per_island.mean(0) - truth) / (per_island.std(0, ddof=1) / np.sqrt(len(per_island)))


def chain_scores(values, truth):
    n_effective = np.asarray(effective_sample_size(jnp.asarray(values)))
    return (values.mean((0, 1)) - truth) / (values.std((0, 1)) / np.sqrt(n_effective)), n_effective


def test_tempered_smc_on_many_observations_of_several_rows(posterior):
    sampler = TemperedSmc(islands=ISLANDS, particles=200 * ISLANDS)
    many = posterior.sample_many(OBSERVED, 400 * ISLANDS, seed=1, sampler=sampler)
    for rows, draws in zip(OBSERVED, many, strict=True):
        assert draws.values.shape == (ISLANDS, 400, 2)
        values = white(draws, rows)
        assert np.abs(island_scores(values.mean(1), WHITE)).max() < Z_ISLANDS
        assert np.abs(island_scores(1.2 * values.mean(1), WHITE)).max() > Z_ISLANDS  # it would be seen
        evidence = np.exp(np.array(draws.info["log_evidence_by_chain"]) - exact(rows)[2])
        assert abs(island_scores(evidence, 1.0)) < Z_ISLANDS
        assert draws.log_evidence == pytest.approx(exact(rows)[2], abs=0.1)
    other = white(many[1], OBSERVED[0])
    assert np.abs(island_scores(other.mean(1), WHITE)).max() > 4 * Z_ISLANDS  # the observations are not mixed up


# One kernel with gradients and one without: `test_samplers_chains.py` has all of them, on a harder target.
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in ("nuts", "hmc") else ()) for name in CHAINS]
)
def test_chains(posterior, name):
    draws = posterior.sample(OBSERVED[0], 8000, seed=2, sampler=CHAINS[name])
    assert draws.values.shape == (40, 200, 2)
    scores, n_effective = chain_scores(white(draws, OBSERVED[0]), WHITE)
    assert np.abs(scores).max() < Z
    assert n_effective.min() > (100 if name == "hmc" else 800)  # trajectories of one length may return to their start
    assert np.isnan(draws.log_evidence)


class Peaks(TractableLikelihood):
    """Likelihood that is a mixture of normals in theta around x + centre_k."""

    log_weights: Float[Array, " peak"]
    centres: Float[Array, " peak"]
    sds: Float[Array, " peak"]

    def prepare(self, x):
        return x

    def log_likelihood(self, theta, w):
        return logsumexp(self.log_weights + norm.logpdf(theta[0], w[0] + self.centres, self.sds))


PEAKS = Peaks(jnp.log(jnp.array([0.3, 0.7])), jnp.array([-1.0, 1.0]), jnp.array([0.02, 0.05]))
BOX = Prior.uniform([-2.0], [2.0])
SMC = TemperedSmc(islands=ISLANDS, particles=200 * ISLANDS)


def test_tempered_smc_finds_the_weights_of_the_modes():
    draws = Posterior(BOX, PEAKS).sample([0.0], 200 * ISLANDS, seed=3, sampler=SMC)
    left = (draws.values[..., 0] < 0).mean(1)
    assert abs(island_scores(left, 0.3)) < Z_ISLANDS
    assert abs(left.mean() - 0.3) < 0.05
    assert draws.summary().loc["theta_1", "r_hat"] < 1.05
    for sign, centre, sd in ((-1, -1.0, 0.02), (1, 1.0, 0.05)):
        part = np.asarray(draws)[sign * np.asarray(draws)[:, 0] > 0, 0]
        assert part.mean() == pytest.approx(centre, abs=0.2 * sd)
        assert part.std() == pytest.approx(sd, rel=0.15)


def test_chains_stuck_in_their_modes_are_given_away_by_r_hat():
    draws = Posterior(BOX, PEAKS).sample([0.0], 2000, seed=4, sampler=Chains(Mala(), chains=10, warm_up=100))
    sides = (draws.values[..., 0] < 0).mean(1)
    assert set(sides) == {0.0, 1.0}  # no chain ever crosses
    assert draws.summary().loc["theta_1", "r_hat"] > 1.2


def test_a_wall_cuts_the_posterior():
    """Half of the likelihood lies beyond the wall at 2; the rest is a truncated normal."""
    wall = Peaks(jnp.array([0.0, -jnp.inf]), jnp.array([0.0, 0.0]), jnp.array([0.5, 1.0]))
    draws = Posterior(BOX, wall).sample([2.2], 200 * ISLANDS, seed=5, sampler=SMC)
    law = truncnorm((-2 - 2.2) / 0.5, (2 - 2.2) / 0.5, loc=2.2, scale=0.5)
    values = draws.values[..., 0]
    assert values.max() <= 2
    moments = np.stack([values.mean(1), (values**2).mean(1), (values > 1.9).mean(1)], axis=1)
    truth = [law.mean(), law.var() + law.mean() ** 2, law.sf(1.9)]
    assert np.abs(island_scores(moments, truth)).max() < Z_ISLANDS
    # prior 1/4 times the likelihood's mass inside the box
    mass = norm.cdf((2 - 2.2) / 0.5) - norm.cdf((-2 - 2.2) / 0.5)
    assert draws.log_evidence == pytest.approx(np.log(mass / 4), abs=0.05)
