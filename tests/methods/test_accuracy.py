"""The long job: AUNLE with its defaults, and with each kind of moving particles, against exact posteriors."""

import numpy as np
import pytest

from unle.diagnose import c2st_fast_batch
from unle.methods import AUNLE
from unle.train import DataParticles, EnergyTraining, PersistentChains, WarmSmc
from unle_bench import task

pytestmark = pytest.mark.slow
BUDGET, DRAWS = 1000, 10_000
BAR, SEED_SD = 0.55, 0.007  # of the mean over ten observations and several seeds; how much one seed's mean varies
PARTICLES = {"default": DataParticles(), "warm SMC": WarmSmc(), "persistent chains": PersistentChains()}


def fitted(name, particles):
    problem = task(name)
    theta = problem.prior.sample(BUDGET, seed=1)
    method = AUNLE(problem.prior, training=EnergyTraining(particles=particles))
    return problem, method.fit((theta, problem.simulate(theta, seed=1)), seed=1)


@pytest.mark.parametrize("name", PARTICLES)
def test_two_moons(name):
    moons, posterior = fitted("two_moons", PARTICLES[name])
    observations = [moons.observation(i) for i in range(1, 11)]
    references = np.stack([moons.reference(x_o, DRAWS, seed=i) for i, x_o in enumerate(observations)])
    draws = np.stack([np.asarray(one) for one in posterior.sample_many(observations, DRAWS, seed=1)])
    scores = c2st_fast_batch(references, draws)
    assert scores.mean() <= BAR + 2 * SEED_SD, scores
    # The posterior of another observation is told apart, so the score can be bad.
    assert c2st_fast_batch(references[:1], draws[1:2])[0] > 0.8


def test_two_modes_of_equal_weight():
    problem, posterior = fitted("bimodal", DataParticles())
    draws = np.asarray(posterior.sample(problem.observation(1), DRAWS, seed=1))
    assert (draws.sum(1) > 0).mean() == pytest.approx(0.5, abs=0.05)
