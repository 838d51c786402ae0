import jax.numpy as jnp
import numpy as np

from unle.train.validity_fit import LARGEST_VALUE, MOST_ENTRIES, AuxiliaryTargets


def test_hints_are_what_is_finite_in_robust_units():
    x = np.array([[0.0, np.nan, 7.0], [1.0, np.inf, 7.0], [2.0, 5.0, 7.0], [1e9, np.nan, 7.0], [np.nan, 6.0, 7.0]])
    hints = AuxiliaryTargets.of(x)
    np.testing.assert_array_equal(hints.finite, np.isfinite(x))
    assert hints.values[3, 0] <= LARGEST_VALUE
    assert hints.values[0, 0] < hints.values[1, 0] < hints.values[2, 0]
    np.testing.assert_array_equal(hints.values[:, 2], 0)  # a constant has no unit
    np.testing.assert_array_equal(hints.values[~hints.finite], 0)
    assert hints.outputs == 6


def test_of_many_entries_some_are_taken_and_of_none_none():
    assert AuxiliaryTargets.of(np.zeros((3, 500))).values.shape == (3, MOST_ENTRIES)
    nothing = AuxiliaryTargets.of(np.empty((3, 0)))
    assert nothing.outputs == 0
    assert nothing.loss(jnp.empty((3, 0))) == 0


def test_the_loss_is_lowest_at_the_truth_and_blind_to_values_that_are_not_there():
    hints = AuxiliaryTargets.of(np.array([[0.0, np.nan], [1.0, 3.0], [2.0, 5.0]]))
    signs = np.where(hints.finite, 30.0, -30.0)
    right = np.concatenate([signs, hints.values], axis=1)
    assert hints.loss(jnp.asarray(right)) < 1e-6
    unseen = right.copy()
    unseen[0, 3] = 100.0
    assert hints.loss(jnp.asarray(unseen)) == hints.loss(jnp.asarray(right))
    wrong = right.copy()
    wrong[1, 3] += 1.0
    assert hints.loss(jnp.asarray(wrong)) > 0.05
