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
    "nuts": Chains(Nuts(max_doublings=3), chains=10, warm_up=50),
    "warm": WarmChains(chains=20, warm_up=20, thin=2),
}


@pytest.mark.parametrize("kind", SAMPLERS)
def test_another_number_of_draws_or_observations_compiles_nothing(x_space, programs, kind):
    posterior = Posterior(unle.Prior.uniform(low=[-1.0], high=[1.0]), Normal(jnp.asarray(0.1), x_space), SAMPLERS[kind])
    for n in (1000, 1234, 10_000):
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


def test_islands_in_threads_are_those_of_one_program(x_space):
    """Each island has the random numbers that it has beside the others."""
    prior, sampler = unle.Prior.uniform(low=[-1.0], high=[1.0]), TemperedSmc(islands=3, particles=600)
    likelihood, key = Normal(jnp.asarray(0.1), x_space), jax.random.key(1)
    shares = []
    apart = module.sample_each(prior, likelihood, sampler, key, [np.array([[0.3]])], 900, shares.append)[0]
    assert shares == [1 / 3, 2 / 3, 1]
    keys = [module.split(one, 1)[0] for one in module.split(key, 2)]
    rows, is_row = jnp.array([[0.3]]), jnp.array([True])
    whole = module.run_sampler(prior, likelihood, sampler, *keys, rows, is_row, sampler.room(900), jnp.asarray(900))
    assert apart.draws.shape == (3, 300, 1)
    assert len(set(apart.log_evidence.round(3))) == 3  # another twin would be seen
    np.testing.assert_allclose(apart.log_evidence, whole.log_evidence, atol=1e-4)
    np.testing.assert_allclose(apart.draws.mean(axis=1), whole.draws[:, :300].mean(axis=1), atol=1e-3)
    np.testing.assert_allclose(apart.path.temperature, whole.path.temperature, atol=1e-4)
    assert abs(apart.acceptance - whole.acceptance) < 1e-3


def test_islands_of_all_observations_are_divided_among_the_processors(monkeypatch, x_space):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    threads, pool = set(), module.ThreadPoolExecutor

    class Watched(pool):
        def map(self, function, *jobs):
            return super().map(lambda job: (threads.add(threading.get_ident()), function(job))[1], *jobs)

    monkeypatch.setattr(module, "ThreadPoolExecutor", Watched)
    posterior = Posterior(unle.Prior.uniform(low=[-1.0], high=[1.0]), Normal(jnp.asarray(0.1), x_space), SAMPLER)
    notes = []
    monkeypatch.setattr("unle.progress._SilentBar.advance", lambda bar, k=1, *, note="": notes.append(note))
    many = posterior.sample_many([[0.1], [-0.4]], 1000, seed=3)
    assert notes[-1] == "100 % sampled"
    assert len(notes) == 2 * SAMPLER.islands
    assert [round(float(np.asarray(one).mean()), 1) for one in many] == [0.1, -0.4]
    assert len(threads) == 2
    assert threading.main_thread().ident not in threads


def test_a_table_of_the_right_size_is_told_to_be_flattened():
    x_space = fit_x_space(np.random.default_rng(0).normal(size=(100, 6)))
    posterior = Posterior(unle.Prior.uniform(low=[-1.0], high=[1.0]), Normal(jnp.asarray(0.1), x_space), SAMPLER)
    with pytest.raises(unle.InputError, match=r"length 6, .*got \(3, 2\); try x_o\.ravel\(\)"):
        posterior.sample(np.zeros((3, 2)))
    with pytest.raises(unle.InputError, match="got 4; try the same numbers"):
        posterior.sample(np.zeros((3, 4)))
