import jax.random as jr
import numpy as np
import pytest

from unle.train import make_splits


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
