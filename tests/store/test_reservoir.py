"""A uniform sample of a store, and hashes that tell which rows are in it."""

import numpy as np
import pytest
from scipy.stats import kstest

from unle.store import Reservoir, SimulationStore, row_hashes

ROWS = 5000


@pytest.fixture(scope="module")
def store():
    with SimulationStore(None) as store:
        for round in (0, 3):
            ids = np.arange(ROWS // 2)
            theta = np.stack([ids, np.full(len(ids), round)], axis=1).astype(float)
            reasons = ["failed" if i % 10 == 0 else "" for i in ids]
            store.append(
                ids=ids, theta=theta, x=theta[:, :1], reasons=reasons, round=round, seconds=np.full(len(ids), 0.5)
            )
        yield store


def names(rows):
    return set(zip(rows.round.tolist(), rows.id.tolist(), strict=True))


def test_hashes_are_uniform_and_belong_to_the_row(store):
    rows = store.read()
    drawn = row_hashes(rows, [1, 2])
    assert len(np.unique(drawn)) == ROWS
    assert kstest(drawn / 2.0**64, "uniform").pvalue > 0.001
    rank = np.corrcoef(np.argsort(np.argsort(drawn)), np.arange(ROWS))[0, 1]
    assert abs(rank) < 4 / np.sqrt(ROWS)
    np.testing.assert_array_equal(row_hashes(store.read(3), [1, 2]), drawn[ROWS // 2 :])
    assert kstest(row_hashes(rows, [1, 3]) / 2.0**64, "uniform").pvalue > 0.001
    assert not np.isin(row_hashes(rows, [1, 3]), drawn).any()


@pytest.mark.parametrize("size", [7, 400, 10_000])
def test_the_sample_is_the_same_however_the_table_is_cut(store, size):
    reservoir = Reservoir(300, [5])
    for span in store.spans(size):
        reservoir.offer(store.read_span(span, 1))
    rows, drawn = reservoir.sample()
    every = store.read()
    wanted = np.argsort(row_hashes(every, [5]))[:300]
    np.testing.assert_array_equal(rows.id, every.id[wanted])
    np.testing.assert_array_equal(rows.round, every.round[wanted])
    np.testing.assert_array_equal(rows.theta[:, 0], rows.id)
    assert (np.diff(drawn.astype(float)) >= 0).all()
    assert [reason == "" for reason in rows.reasons] == rows.valid.tolist()


def test_a_sample_of_a_store(store):
    rows = store.sample(1000, seed=3)
    assert len(names(rows)) == 1000
    assert sorted(names(rows)) == list(zip(rows.round.tolist(), rows.id.tolist(), strict=True))
    assert abs((rows.round == 0).mean() - 0.5) < 4 * 0.5 / np.sqrt(1000)
    assert abs(rows.valid.mean() - 0.9) < 4 * 0.3 / np.sqrt(1000)
    assert names(store.sample(1000, seed=3)) == names(rows)
    assert names(store.sample(1000, seed=4)) != names(rows)
    assert len(store.sample(ROWS).id) == len(store.sample().id) == ROWS


def test_a_tally_counts_without_reading(store):
    assert store.tally() == (ROWS, 0.9 * ROWS, 0.5 * ROWS)
    assert store.tally(3).count == ROWS // 2
    assert store.tally(1) == (0, 0, 0)
    assert (store.dim(), store.width(None)) == (2, 1)
