"""The sampler compiles while a model trains, and only if it may."""

import threading

import jax.numpy as jnp
import numpy as np
import pytest

import unle
import unle.posterior.run_sampler as module
from unle.models import TractableLikelihood
from unle.posterior import Posterior, TemperedSmc, precompile_sampler
from unle.space import fit_x_space

SAMPLER = TemperedSmc(islands=2, particles=200)


class Normal(TractableLikelihood):
    """x ~ N(theta, scale)."""

    scale: jnp.ndarray
    x_space: object

    def space_of_x(self):
        return self.x_space

    def prepare(self, x):
        return x

    def log_likelihood(self, theta, w):
        return -0.5 * jnp.sum(((w - theta) / self.scale) ** 2)


@pytest.fixture(scope="module")
def x_space():
    return fit_x_space(np.random.default_rng(0).normal(size=(100, 1)))


@pytest.fixture
def compiled(monkeypatch):
    """Count compilations of the sampler through the two doors: ahead, and when it is called."""
    counts = {"traced": 0}
    inner = module.log_likelihood

    def counting(*arguments):
        counts["traced"] += 1
        return inner(*arguments)

    monkeypatch.setattr(module, "log_likelihood", counting)
    return counts


def test_draws_after_training_need_no_compilation(monkeypatch, x_space, compiled):
    monkeypatch.setenv("UNLE_AHEAD", "1")
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    prior = unle.Prior.uniform(low=[-1.0], high=[1.0])
    with precompile_sampler(prior, lambda: Normal(jnp.asarray(1.0), x_space), SAMPLER):
        assert any(thread.daemon and thread.is_alive() for thread in threading.enumerate()[1:])
    before = compiled["traced"]
    assert before > 0
    posterior = Posterior(prior, Normal(jnp.asarray(0.1), x_space), SAMPLER)  # other weights, the same shapes
    draws = np.asarray(posterior.sample([0.3]))
    assert abs(draws.mean() - 0.3) < 0.05
    assert compiled["traced"] == before
    posterior.sample([0.3], 500)  # another number of draws is another program
    assert compiled["traced"] > before


@pytest.mark.parametrize(("switch", "cores"), [("0", 2), ("1", 1)])
def test_nothing_is_compiled_ahead_where_it_is_unwanted_or_would_only_delay(
    monkeypatch, x_space, compiled, switch, cores
):
    monkeypatch.setenv("UNLE_AHEAD", switch)
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    prior = unle.Prior.uniform(low=[-2.0], high=[1.0])
    with precompile_sampler(prior, lambda: Normal(jnp.asarray(1.0), x_space), SAMPLER):
        pass
    assert compiled["traced"] == 0
