"""Keys that are made on the host are as many and as different as those of the device."""

import jax.random as jr
import numpy as np
from scipy import stats

from unle.compiling import keys, split


def words(some):
    return np.asarray(jr.key_data(some))


def test_keys_depend_on_the_key_and_their_place_alone():
    table = words(keys(jr.key(1), 100, 3))
    assert table.shape == (100, 3, 2)
    assert len(np.unique(table.reshape(-1, 2), axis=0)) == 300
    np.testing.assert_array_equal(words(keys(jr.key(1), 50, 3)), table[:50])  # more of them begin with the same
    np.testing.assert_array_equal(np.stack([words(key) for key in split(jr.key(1), 3)]), table[0])
    assert not np.isin(words(keys(jr.key(2), 100, 3)), table).any()


def test_their_draws_are_independent():
    draws = np.stack([np.asarray(jr.normal(key, (400,))) for key in split(jr.key(0), 50)])
    assert stats.kstest(draws.ravel(), "norm").pvalue > 1e-3
    r = np.corrcoef(draws)[np.triu_indices(50, 1)]
    assert np.abs(r).max() < 5.5 / np.sqrt(400)  # of 1,225 correlations with a standard error of 1 / 20
    shifted = np.corrcoef(draws[0, 1:], draws[0, :-1])[0, 1]
    assert abs(shifted) < 4 / np.sqrt(400)


def test_there_may_be_none():
    assert split(jr.key(0), 0) == ()
    assert keys(jr.key(0), 0, 2).shape == (0, 2)
