import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from unle.train import Rows, make_splits


@pytest.mark.parametrize(("n", "members"), [(32, 1), (100, 5), (101, 10), (33, 14)])
def test_every_row_is_either_trained_on_or_held_out(n, members):
    splits = make_splits(jr.key(0), n, members=members)
    for train, held_out in zip(np.asarray(splits.train), np.asarray(splits.held_out), strict=True):
        np.testing.assert_array_equal(np.sort(np.concatenate([train, held_out])), np.arange(n))
    assert splits.held_out.shape == (members, max(1, round(n / 10)))


def test_held_out_parts_are_disjoint_while_the_rows_last():
    held_out = np.asarray(make_splits(jr.key(0), 100, members=10).held_out)
    np.testing.assert_array_equal(np.sort(held_out.ravel()), np.arange(100))
    again = np.asarray(make_splits(jr.key(0), 100, members=12).held_out)
    np.testing.assert_array_equal(again[10], held_out[0])  # then they begin anew


def test_splits_depend_on_the_key_only():
    first, second, other = (make_splits(jr.key(seed), 50, members=2) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.held_out, second.held_out)
    assert (np.asarray(first.held_out) != np.asarray(other.held_out)).any()


def test_growing_tables_hold_out_the_same_rows_from_a_member():
    """Energies go on from round to round: what they were trained on must not judge them later."""
    rng, members = np.random.default_rng(0), 3
    small = np.sort(rng.permutation(600)[:400])
    large = np.sort(rng.permutation(1000)[:700])

    def dealt(rows, seed=0):
        splits = make_splits(jr.key(seed), len(rows), members=members, among=(rows, 1000))
        return [tuple(set(rows[np.asarray(part)]) for part in member) for member in zip(*splits, strict=True)]

    def leaked(seed):
        pairs = zip(dealt(small), dealt(large, seed), strict=True)
        return [len(trained & held) / len(held & set(small)) for (trained, _), (_, held) in pairs]

    assert max(leaked(0)) < 0.5
    assert np.mean(leaked(0)) < 0.3
    assert np.mean(leaked(1)) > 0.8  # dealt anew, nine in ten


def test_padding_repeats_rows_of_all_ages():
    n, capacity = 900, 1000
    t = jnp.arange(n, dtype=jnp.float32)[:, None]
    rows = Rows(t, t, make_splits(jr.key(0), n, members=2)).padded(capacity)
    padded, splits = rows.t, rows.splits
    assert rows.n_held_out == 90
    assert rows.stopping == slice(0, 54)
    assert rows.deciding == slice(54, 90)  # repetitions decide nothing
    assert padded.shape[0] == capacity
    np.testing.assert_array_equal(padded[:n], t)
    for extra in (np.asarray(padded)[n:, 0], np.asarray(splits.train)[0, -80:]):
        assert len(set(extra)) == len(extra)
        assert abs(np.mean(extra) - n / 2) < 4 * n / np.sqrt(12 * len(extra))  # the oldest hundred: 50
