import sqlite3
import sys

import numpy as np
import pytest

from unle.errors import InputError, StoreError
from unle.store import SimulationStore


def fill(store, n=300, round=0):
    rng = np.random.default_rng(round)
    theta, x = rng.normal(size=(n, 3)), rng.normal(size=(n, 2))
    store.append(ids=range(n), theta=theta, x=x, reasons=[""] * n, seconds=np.full(n, 0.5), round=round, worker="w")
    return theta, x


@pytest.fixture
def path(tmp_path):
    return tmp_path / "simulations.sqlite"


def test_rows_come_back_exactly_and_in_order(path):
    with SimulationStore(path) as store:
        theta, x = fill(store, round=1)
        first, _ = fill(store, n=4, round=0)
    with SimulationStore(path) as store:
        rows = store.read(1)
        np.testing.assert_array_equal(rows.theta, theta)
        np.testing.assert_array_equal(rows.x, x)
        assert rows.valid.all()
        assert rows.seconds.sum() == 150.0
        assert store.workers() == {"w": 304}
        both = store.read()
        assert store.count() == len(both.id) == 304
        np.testing.assert_array_equal(both.round, [0] * 4 + [1] * 300)
        np.testing.assert_array_equal(both.theta[:4], first)


def test_an_empty_store_reads_as_empty_arrays(path):
    with SimulationStore(path) as store:
        rows = store.read()
    assert store.path.exists()
    assert rows.theta.shape == (0, 0)
    assert rows.x.shape == (0, 0)
    assert rows.reasons == ()


def test_invalid_rows_are_kept_with_their_reason(path):
    with SimulationStore(path) as store:
        x = [np.array([1.0, 2.0]), None, np.array([5.0]), np.array([np.nan, 1.0])]
        store.append(ids=range(4), theta=np.zeros((4, 1)), x=x, reasons=["", "ValueError: no", "wrong shape", "NaN"])
        rows = store.read()
    np.testing.assert_array_equal(rows.valid, [True, False, False, False])
    np.testing.assert_array_equal(rows.x[0], [1.0, 2.0])
    assert np.isnan(rows.x[1:3]).all()
    assert rows.x[3, 1] == 1.0
    assert rows.reasons[1] == "ValueError: no"


def test_rows_of_every_kind_come_back_whatever_their_neighbours(path, monkeypatch):
    monkeypatch.setattr(sys.modules["unle.store.reading"], "SPAN_ROWS", 7)
    rng = np.random.default_rng(0)
    ids = np.sort(rng.choice(1000, size=60, replace=False))
    ids[-1] = 2**62  # a gap that nobody may walk through step by step
    kinds = rng.integers(0, 4, size=60)
    x = [(None, np.full(2, 1.0 * i), np.full(2, i + 0.5), np.full(5, 2.0 * i))[kinds[i]] for i in range(60)]
    reasons = ["" if kind in (1, 2) else f"bad {i}" for i, kind in enumerate(kinds)]
    theta = rng.normal(size=(60, 3))
    with SimulationStore(path) as store:
        store.append(ids=ids, theta=theta, x=x, reasons=reasons, seconds=np.arange(60.0))
        rows = store.read(0)
        streamed = np.concatenate([t for t, _ in store.batches(4)])
    np.testing.assert_array_equal(rows.id, ids)
    np.testing.assert_array_equal(rows.theta, theta)
    np.testing.assert_array_equal(rows.seconds, np.arange(60.0))
    assert rows.reasons == tuple(reasons)
    for i, vector in enumerate(x):
        np.testing.assert_array_equal(rows.x[i], vector if kinds[i] in (1, 2) else np.full(2, np.nan))
    np.testing.assert_array_equal(streamed, theta[rows.valid])


def test_two_rows_that_swapped_their_numbers_are_noticed(path):
    with SimulationStore(path) as store:
        fill(store, n=20)
    connection = sqlite3.connect(path)
    blobs = dict(connection.execute("SELECT id, data FROM simulations WHERE id IN (3, 4)"))
    connection.executemany("UPDATE simulations SET data = ? WHERE id = ?", [(blobs[3], 4), (blobs[4], 3)])
    connection.commit()
    connection.close()
    with SimulationStore(path) as store, pytest.raises(StoreError, match="check sum"):
        store.read()


def test_a_simulation_is_stored_once_and_a_refused_batch_leaves_nothing(path):
    with SimulationStore(path) as store:
        fill(store, n=3)
        with pytest.raises(StoreError, match="already holds some of the simulations 2 to 5 of round 0"):
            store.append(ids=range(2, 6), theta=np.zeros((4, 3)), x=np.zeros((4, 2)), reasons=[""] * 4)
        assert store.count() == 3


def test_arguments_of_unequal_length_are_refused(path):
    with SimulationStore(path) as store, pytest.raises(InputError, match="'reasons': 1"):
        store.append(ids=[0, 1], theta=np.zeros((2, 3)), x=np.zeros((2, 2)), reasons=[""])


def test_two_connections_see_each_other(path):
    with SimulationStore(path) as one, SimulationStore(path) as two:
        fill(one, n=5)
        assert two.count() == 5


def test_a_file_that_is_not_a_database_is_refused(path):
    path.write_bytes(b"round,id,theta\n" * 100)
    with pytest.raises(StoreError, match="damaged or no simulation store"):
        SimulationStore(path)


def test_the_database_of_another_program_is_refused(path):
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.close()
    with pytest.raises(StoreError, match="of another program"):
        SimulationStore(path)
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM bookmarks").fetchone() == (0,)  # and left alone
    connection.close()


def test_a_later_format_is_refused(path):
    SimulationStore(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreError, match="format 99"):
        SimulationStore(path)


@pytest.mark.parametrize("column", ["data", "width", "dim", "valid", "id"])
def test_a_changed_row_is_refused_when_it_is_read(path, column):
    with SimulationStore(path) as store:
        fill(store, n=20)
    value = {"data": "zeroblob(56)", "width": 3, "dim": 2, "valid": 0, "id": 77}[column]
    connection = sqlite3.connect(path)
    connection.execute(f"UPDATE simulations SET {column} = {value} WHERE id = 7")
    connection.commit()
    connection.close()
    with SimulationStore(path) as store, pytest.raises(StoreError, match="is damaged"):
        store.read()
    with SimulationStore(path) as store, pytest.raises(StoreError, match="is damaged"):
        list(store.batches(5))


def test_a_changed_reason_is_refused_when_it_is_read(path):
    with SimulationStore(path) as store:
        store.append(ids=[0, 1], theta=np.ones((2, 1)), x=[None, np.ones(1)], reasons=["crashed", ""])
    connection = sqlite3.connect(path)
    connection.execute("UPDATE simulations SET reason = 'timed out' WHERE id = 0")
    connection.commit()
    connection.close()
    with SimulationStore(path) as store, pytest.raises(StoreError, match="check sum"):
        store.read()


@pytest.mark.parametrize("harm", ["truncated", "overwritten"])
def test_a_damaged_file_is_refused_when_it_is_opened(path, harm):
    with SimulationStore(path) as store:
        fill(store)
    content = bytearray(path.read_bytes())
    assert len(content) > 3 * 4096
    if harm == "truncated":
        content = content[: len(content) // 2]
    else:
        content[2 * 4096 : 3 * 4096] = b"\xff" * 4096
    path.write_bytes(content)
    with pytest.raises(StoreError, match="damaged") as caught:
        SimulationStore(path)
    assert "\n" not in str(caught.value)


def test_a_vector_of_impossible_length_is_refused(path):
    with SimulationStore(path) as store:
        fill(store, n=2)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE simulations SET data = x'00' WHERE id = 1")
    connection.commit()
    connection.close()
    with SimulationStore(path) as store, pytest.raises(StoreError, match="another length"):
        store.read()


def test_a_directory_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(StoreError, match="could not be opened"):
        SimulationStore(tmp_path / "nowhere" / "simulations.sqlite")
