"""The sampler compiles while a model trains, and only if it may."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unle
import unle.posterior.run_sampler as module
from unle.models import TractableLikelihood
from unle.posterior import Chains, Posterior, TemperedSmc, WarmChains, precompile_sampler
from unle.samplers import Nuts
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
    posterior.sample([0.3], 7000)  # another number of draws is the same program
    assert compiled["traced"] == before


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


@pytest.fixture
def programs():
    """Count the programs that JAX compiles, of any kind."""
    counts = []

    def listen(event, _seconds, **_):
        if event == "/jax/core/compile/backend_compile_duration":
            counts.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield counts
    jax.monitoring.unregister_event_duration_listener(listen)


SAMPLERS = {
    "smc": TemperedSmc(islands=2, particles=2000),
    "nuts": Chains(Nuts(), chains=10, warm_up=50),
    "warm": WarmChains(chains=20, warm_up=20, thin=2),
}


@pytest.mark.parametrize("kind", SAMPLERS)
def test_another_number_of_draws_or_observations_compiles_nothing(x_space, programs, kind):
    posterior = Posterior(unle.Prior.uniform(low=[-1.0], high=[1.0]), Normal(jnp.asarray(0.1), x_space), SAMPLERS[kind])
    for n in (1000, 1234, 5000, 10_000):
        draws = np.asarray(posterior.sample([0.3], n))
        assert n <= len(draws) < n + 20
        assert abs(draws.mean() - 0.3) < 0.03
        assert abs(draws.std() - 0.1) < 0.02
        if n == 1000:
            programs.clear()
    assert [len(one) for one in posterior.sample_many([[0.1], [0.2], [0.3]], 100)] == [100] * 3
    assert not programs


def test_more_draws_than_there_is_room_for_compile_another_program(x_space, programs):
    posterior = Posterior(unle.Prior.uniform(low=[-1.0], high=[1.0]), Normal(jnp.asarray(0.1), x_space), SAMPLER)
    posterior.sample([0.3], SAMPLER.room(1))
    programs.clear()
    posterior.sample([0.3], SAMPLER.room(1) + 1)
    assert programs


def test_another_number_of_rows_compiles_nothing_up_to_a_block_and_counts_each_once(x_space, programs):
    posterior = Posterior(unle.Prior.uniform(low=[-1.0], high=[1.0]), Normal(jnp.asarray(0.1), x_space), SAMPLER)
    rows = np.array([[0.3], [0.5], [0.1], [0.2], [0.3], [0.4], [0.35], [0.25]])
    for k in (8, 5, 6, 7):
        draws = np.asarray(posterior.sample(rows[:k], 1600))
        assert abs(draws.mean() - rows[:k].mean()) < 0.01
        assert abs(draws.std() / (0.1 / np.sqrt(k)) - 1) < 0.1
        if k == 8:
            programs.clear()
    assert not programs


def test_fewer_draws_are_as_good_as_many(x_space):
    """Surplus draws are left out evenly: no part of the particles is missing."""
    posterior = Posterior(unle.Prior.uniform(low=[-1.0], high=[1.0]), Normal(jnp.asarray(5.0), x_space), SAMPLER)
    draws = np.asarray(posterior.sample([0.0], 150))
    assert len(np.unique(draws)) > 0.9 * 150  # different particles
    assert abs(draws.mean()) < 0.2
    assert abs(draws.std() - 2 / np.sqrt(12)) < 0.1
