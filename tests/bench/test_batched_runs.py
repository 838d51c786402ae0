"""Runs side by side give what they give alone, and compute at once what they have in common."""

import threading
import time
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from unle import AUNLE, task
from unle.compiling import RUNNER, large_program, meanwhile, on_device
from unle.errors import UnleWarning
from unle.train import EnergyTraining, GaussianTraining, Rows, make_splits
from unle_bench.sweep.batched_runs import BatchedRuns, run_together


@pytest.fixture
def steps(monkeypatch):
    """Every `BatchedRuns` that is made, to ask for its sizes."""
    made = []

    class Watched(BatchedRuns):
        def __init__(self, threads):
            super().__init__(threads)
            made.append(self)

    monkeypatch.setattr("unle_bench.sweep.batched_runs.BatchedRuns", Watched)
    return made


def counted(function):
    """Return a large program and the shapes that it was traced with."""
    shapes = []

    @large_program
    def program(x, *rest):
        shapes.append(jnp.shape(x))
        return function(x, *rest)

    return program, shapes


class Scaled(eqx.Module):
    factor: jax.Array
    power: int = eqx.field(static=True)

    def __call__(self, x):
        return self.factor * x**self.power


def test_each_gets_its_own_results_from_one_program(steps):
    program, shapes = counted(lambda x, model, key: (model(x) + jr.normal(key), {"model": model, "name": "kept"}))

    def run(k):
        total = 0.0
        for i in range(3):
            value, rest = program(np.float32(k), Scaled(jnp.asarray(2.0), 2), jr.key(i))
            total += value
        return float(total), rest["name"], rest["model"].power

    together = run_together([lambda k=k: run(k) for k in range(4)])
    assert steps[0].sizes == [4, 4, 4]
    assert len(shapes) == 1  # traced once, for all four
    assert together == [run(k) for k in range(4)]
    assert len({total for total, *_ in together}) == 4


def test_calls_of_other_shapes_and_settings_do_not_mix(steps):
    program, _ = counted(lambda x, model: model(x))
    sizes, powers = [2, 2, 3, 2], [1, 1, 1, 3]
    calls = [
        lambda n=n, p=p: np.asarray(program(jnp.full(n, 3.0), Scaled(jnp.asarray(2.0), p)))
        for n, p in zip(sizes, powers, strict=True)
    ]
    results = run_together(calls)
    for result, n, p in zip(results, sizes, powers, strict=True):
        np.testing.assert_allclose(result, np.full(n, 2 * 3.0**p))
    assert sorted(steps[0].sizes) == [1, 1, 2]


def test_who_is_behind_catches_up(steps):
    first, _ = counted(lambda x: x + 1)
    second, _ = counted(lambda x: 2 * x)

    def run(k):
        x = jnp.asarray(float(k))
        for _ in range(1 if k else 2):  # one of them has a step more before the second program
            x = first(x)
        return float(second(x))

    assert run_together([lambda k=k: run(k) for k in range(4)]) == [4.0, 4.0, 6.0, 8.0]
    assert steps[0].sizes == [4, 1, 4]


def test_those_who_end_are_not_waited_for(steps):
    program, _ = counted(lambda x: x + 1)

    def run(k):
        x = jnp.asarray(0.0)
        for _ in range(k):
            x = program(x)
            time.sleep(0.01 * k)
        return float(x)

    assert run_together([lambda k=k: run(k) for k in range(4)]) == [0.0, 1.0, 2.0, 3.0]
    assert steps[0].sizes == [3, 2, 1]


def test_an_error_of_one_is_its_own(steps):
    program, _ = counted(lambda x: x + 1)
    ended = []

    def run(k):
        x = program(jnp.asarray(float(k)))
        if k == 1:
            raise ValueError("number one")
        ended.append(float(program(x)))

    with pytest.raises(ValueError, match="number one"):
        run_together([lambda k=k: run(k) for k in range(3)])
    assert sorted(ended) == [2.0, 4.0]


def test_what_cannot_run_together_runs_alone_and_is_told_once(steps, monkeypatch):
    tried = []

    def too_large(self, group):
        tried.append(len(group))
        raise MemoryError("too large together")

    monkeypatch.setattr(BatchedRuns, "_run_together", too_large)
    program, _ = counted(lambda x: x + 1)

    def run(k):
        return np.asarray(program(program(jnp.full(2, float(k)))))

    with pytest.warns(UnleWarning, match="too large together.*one after the other") as told:
        results = run_together([lambda k=k: run(k) for k in range(3)])
    np.testing.assert_allclose(results, [[2, 2], [3, 3], [4, 4]])
    assert tried == [3]
    assert len(told) == 1
    assert steps[0].sizes == [3, 3]


@pytest.mark.filterwarnings("ignore::unle.errors.UnleWarning")
def test_what_fails_alone_as_well_is_raised():
    @large_program
    def broken(x):
        raise KeyError("always")

    with pytest.raises(KeyError, match="always"):
        run_together([lambda: broken(jnp.ones(2)) for _ in range(2)])


def test_settings_that_cannot_be_compared_hold_nobody_up(steps):
    class Table(eqx.Module):
        values: np.ndarray = eqx.field(static=True)

        def __call__(self, x):
            return x + float(self.values.sum())

    program = large_program(lambda x, table: table(x))
    calls = [lambda k=k: float(program(jnp.asarray(float(k)), Table(np.arange(3.0)))) for k in range(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of equinox, about arrays among settings
        ended = []
        thread = threading.Thread(target=lambda: ended.append(_outcome(calls)), daemon=True)
        thread.start()
        thread.join(timeout=60)
    assert ended, "the threads wait for each other"


def _outcome(calls):
    try:
        return run_together(calls)
    except Exception as error:  # what equinox makes of such settings is not the matter here
        return error


def test_an_interrupt_lets_no_thread_go_on(monkeypatch):
    program, _ = counted(lambda x: x + 1)
    begun, steps_done = threading.Event(), []

    def run():
        for _ in range(10_000):
            program(jnp.ones(2))
            steps_done.append(1)
            begun.set()
            time.sleep(0.001)

    join, interrupted = threading.Thread.join, []

    def interrupt(thread, timeout=None):
        if threading.current_thread() is threading.main_thread() and not interrupted:
            interrupted.append(1)
            begun.wait(60)
            raise KeyboardInterrupt
        join(thread, timeout)

    monkeypatch.setattr(threading.Thread, "join", interrupt)
    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        run_together([run, run])
    deadline = time.monotonic() + 30
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before
    assert 0 < len(steps_done) < 20_000


def test_nothing_is_compiled_ahead_for_one_who_will_not_run_it():
    compiled = []

    def run():
        with meanwhile(lambda: compiled.append(1)):
            return RUNNER.get() is not None

    assert run_together([run, run]) == [True, True]
    assert compiled == []
    assert RUNNER.get() is None  # outside, nothing has changed
    assert run_together([lambda: threading.current_thread() is threading.main_thread()]) == [True]


def test_fits_side_by_side_are_the_fits_alone(steps):
    training = GaussianTraining(width=8, depth=1, iterations=100, chunk=20)

    def run(seed):
        t, noise = np.random.default_rng(seed).normal(size=(2, 400, 2))
        t, w = on_device(t), on_device(np.sin(2 * t) + 0.3 * noise)
        return training.fit(jr.key(seed), Rows(t, w, make_splits(jr.key(seed), 400, members=2)))

    together = run_together([lambda seed=seed: run(seed) for seed in range(2)])
    assert set(steps[0].sizes) == {2}
    for seed, bases in enumerate(together):
        for one, other in zip(jax.tree.leaves(bases), jax.tree.leaves(run(seed)), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-3)


@pytest.mark.slow
def test_posteriors_side_by_side_are_the_posteriors_alone(steps):
    two_moons = task("two_moons")

    def run(seed):
        theta = two_moons.prior.sample(300, seed=seed)
        method = AUNLE(two_moons.prior, training=EnergyTraining(iterations=100), members=1)
        posterior = method.fit((theta, two_moons.simulate(theta, seed)), seed=seed)
        return np.asarray(posterior.sample(two_moons.observation(1), 500, seed=seed)), posterior

    together = run_together([lambda seed=seed: run(seed) for seed in range(2)])
    assert steps[0].sizes.count(2) > 0.5 * len(steps[0].sizes)  # not all: one of them trains longer
    for seed, (draws, posterior) in enumerate(together):
        alone, other = run(seed)
        gap = posterior.log_prob(alone, two_moons.observation(1)) - other.log_prob(alone, two_moons.observation(1))
        np.testing.assert_allclose(np.asarray(gap), 0, atol=0.05)
        np.testing.assert_allclose(draws.mean(axis=0), alone.mean(axis=0), atol=6 * alone.std() / np.sqrt(len(alone)))
