"""A window that is renewed: every row enters it, held-out rows never do, and the seed decides the order."""

from collections import Counter

import jax.numpy as jnp
import numpy as np
import pytest

from unle.store import Reservoir, SimulationStore
from unle.train.rows import Stream, scatter_rows

ROWS, WINDOW, HELD_OUT, SEED = 3000, 500, 60, [4, 2]


@pytest.fixture(scope="module")
def store():
    with SimulationStore(None) as store:
        ids = np.arange(ROWS)
        reasons = ["failed" if i % 7 == 0 else "" for i in ids]
        store.append(ids=ids, theta=ids[:, None].astype(float), x=2.0 * ids[:, None], reasons=reasons)
        yield store


@pytest.fixture
def drawn(store):
    reservoir = Reservoir(WINDOW, SEED)
    reservoir.offer(store.read())
    rows, lots = reservoir.sample()
    return rows.id[rows.valid], lots[rows.valid], lots[-1]


def make(store, drawn, seed=SEED):
    ids, lots, largest = drawn
    places = np.arange(HELD_OUT, len(ids))
    limits = {"held_out": int(lots[HELD_OUT - 1]), "window": int(largest)}
    return Stream(store, lambda theta, x: (jnp.asarray(theta), jnp.asarray(x)), places, **limits, seed=seed)


def taken(stream, n):
    fresh = stream.take(n)
    np.testing.assert_array_equal(fresh.w, 2 * fresh.t)
    return np.asarray(fresh.t)[:, 0].astype(int).tolist(), np.asarray(fresh.indices)


def test_every_row_enters_once_in_a_pass_and_held_out_rows_never_do(store, drawn):
    ids, _, _ = drawn
    valid = {i for i in range(ROWS) if i % 7}
    held_out, at_first = set(ids[:HELD_OUT].tolist()), set(ids[HELD_OUT:].tolist())
    stream = make(store, drawn)
    first = sum((taken(stream, 107)[0] for _ in range((len(valid) - len(ids)) // 107)), [])
    assert max(Counter(first).values()) == 1
    assert not set(first) & (held_out | at_first)
    rest = (len(valid) - len(ids)) % 107
    first += taken(stream, rest)[0]
    assert set(first) | held_out | at_first == valid
    second = sum((taken(stream, 100)[0] for _ in range((len(valid) - HELD_OUT) // 100)), [])
    assert max(Counter(second).values()) == 1
    assert not set(second) & held_out
    assert set(second) & at_first
    assert stream.taken == len(first) + len(second)


def test_the_oldest_places_are_renewed_first_and_never_those_of_held_out_rows(store, drawn):
    stream, free = make(store, drawn), len(drawn[0]) - HELD_OUT
    _, places = taken(stream, 250)
    np.testing.assert_array_equal(places, HELD_OUT + np.arange(250))
    _, places = taken(stream, 250)
    np.testing.assert_array_equal(places, HELD_OUT + (250 + np.arange(250)) % free)
    rows, places = taken(stream, 10_000)
    assert sorted(places) == list(range(HELD_OUT, HELD_OUT + free))
    assert len(rows) == free


def test_the_seed_decides_the_order(store, drawn):
    first, again, other = (taken(make(store, drawn, seed), 200)[0] for seed in (SEED, SEED, [4, 3]))
    assert first == again
    assert first != other
    assert abs(np.mean(first) - ROWS / 2) < 4 * ROWS / np.sqrt(12 * 200) * 3  # spans of neighbours, in random order


def test_rows_are_put_in_their_places():
    old = jnp.zeros((5, 2)), jnp.zeros((5, 1))
    new = scatter_rows(old, jnp.array([3, 0]), (jnp.ones((2, 2)), 2 * jnp.ones((2, 1))))
    np.testing.assert_array_equal(new[0][:, 0], [1, 0, 0, 1, 0])
    np.testing.assert_array_equal(new[1][:, 0], [2, 0, 0, 2, 0])
