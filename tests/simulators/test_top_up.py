"""A round that is asked for again with more simulations: those that are there stay, the others are made."""

import jax.random as jr
import numpy as np
import pytest

from unle.errors import StoreError
from unle.simulators import Simulations, batched, jax_simulator, run_round, simulate, simulate_into
from unle.simulators.dispatch import Blocks
from unle.store import SimulationStore


class Box:
    """Longer samples begin with shorter ones."""

    def sample(self, n, *, seed=0):
        return np.random.default_rng(seed).uniform(-1, 1, size=(n, 2)).astype(np.float32)


class Reversed(Box):
    """Longer samples end with shorter ones."""

    def sample(self, n, *, seed=0):
        return super().sample(n, seed=seed)[::-1]


def noisy(theta, rng):
    return theta + rng.normal(size=2)


def two_calls():
    """Return a simulator of random numbers alone, drawn by two calls: a row's depend on the size of its block."""

    def both_noises(theta, rng):  # not at the top of the file, which worker processes cannot import
        return np.column_stack([rng.normal(size=len(theta)), rng.normal(size=len(theta))])

    return both_noises


def in_jax(key, theta):
    return theta + jr.normal(key, (2,))


@pytest.fixture
def store(tmp_path):
    with SimulationStore(tmp_path / "simulations.sqlite") as store:
        yield store


@pytest.mark.parametrize("simulator", [noisy, jax_simulator(in_jax, batch=16)], ids=["plain", "jax"])
def test_a_topped_up_round_is_the_one_made_at_once(store, simulator):
    first = simulate(simulator, Box(), 30, seed=3, store=store)
    more = simulate(simulator, Box(), 70, seed=3, store=store)
    whole = simulate(simulator, Box(), 70, seed=3)
    np.testing.assert_array_equal(more.x[:30], first.x)
    np.testing.assert_array_equal(more.theta, whole.theta)
    np.testing.assert_allclose(more.x, whole.x, rtol=1e-6 if simulator is not noisy else 0)


def test_what_is_there_is_not_simulated_again_and_a_crash_in_the_middle_is_resumed(store):
    simulate(noisy, Box(), 30, store=store)
    calls = []

    def stops(theta, rng):
        calls.append(1)
        if len(calls) == 20:
            raise KeyboardInterrupt
        return noisy(theta, rng)

    with pytest.raises(KeyboardInterrupt):
        simulate(stops, Box(), 70, store=store)
    assert store.count() == 49
    resumed = simulate(stops, Box(), 70, store=store)
    assert len(calls) == 41  # 40 and the interrupted one
    np.testing.assert_array_equal(resumed.x, simulate(noisy, Box(), 70).x)


def repeats(sims):
    return sims.x.size - len(np.unique(sims.x))


@pytest.mark.parametrize("workers", [None, 2])
def test_no_random_number_of_a_vectorised_simulator_is_used_twice(store, workers):
    simulator = batched(two_calls())
    simulate(simulator, Box(), 300, store=store)
    more = simulate(simulator, Box(), 400, store=store, workers=workers)
    more = simulate(simulator, Box(), 800, store=store, workers=workers)
    whole = simulate(simulator, Box(), 800)
    assert repeats(more) == repeats(whole) == 0
    same = (more.x == whole.x).all(axis=1)
    assert same[:256].all()
    assert same[512:].all()  # only the block that was cut short differs
    assert not same[256:512].all()


def test_filling_up_a_block_would_repeat_random_numbers(store, monkeypatch):
    """The wrong way, which the blocks of top-ups avoid."""
    simulate(batched(two_calls()), Box(), 300, store=store)
    claim = run_round.claim_round
    monkeypatch.setattr(run_round, "claim_round", lambda *arguments: claim(*arguments)[:0])
    assert repeats(simulate(batched(two_calls()), Box(), 800, store=store)) > 0


def test_blocks_cover_every_row_once():
    blocks = Blocks(16, 100, (10, 40, 48, 50))
    rows = [blocks.of(first) for first in blocks.firsts(np.arange(100))]
    np.testing.assert_array_equal(np.concatenate(rows), np.arange(100))
    assert max(map(len, rows)) == 16
    for row in rows:
        assert all(np.array_equal(blocks.of(int(id)), row) for id in row)


def test_what_is_no_top_up_is_refused(store):
    simulate(noisy, Box(), 30, store=store)
    with pytest.raises(StoreError, match="30 of them, and 20 were asked for; try n=30, or another file"):
        simulate(noisy, Box(), 20, store=store)
    with pytest.raises(StoreError, match="another seed, n, theta"):
        simulate(noisy, Box(), 70, seed=1, store=store)
    with pytest.raises(StoreError, match="another n, theta"):
        simulate(noisy, Reversed(), 70, store=store)
    simulate(noisy, Box(), 30, round=1, store=store)  # later rounds follow from the first
    with pytest.raises(StoreError, match="other simulations of round 0"):
        simulate(noisy, Box(), 70, store=store)
    assert len(Simulations.from_store(store)) == 60


def test_parameters_that_another_machine_rounds_otherwise_are_the_same(tmp_path):
    theta = np.random.default_rng(0).uniform(size=(6, 2))
    calls = []

    def simulator(theta, rng):
        calls.append(theta)
        return theta

    with SimulationStore(tmp_path / "s.sqlite") as store:
        simulate_into(store, simulator, theta[:4])
        simulate_into(store, simulator, theta * (1 + 1e-7))  # more of them, rounded otherwise
        assert len(calls) == store.count(0) == 6
        with pytest.raises(StoreError, match="other simulations of round 0"):
            simulate_into(store, simulator, theta * 1.001)
