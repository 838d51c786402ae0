"""Better by so many standard errors."""

import numpy as np
import pytest

from unle.train import is_better, simplest_as_good, standard_error

ROWS = np.random.default_rng(0).normal(size=(4, 25))


def test_the_standard_error_is_that_of_the_mean_over_all_rows():
    assert standard_error(ROWS) == pytest.approx(ROWS.std() / 10)


@pytest.mark.parametrize("errors", [1.0, 2.0])
def test_a_mean_must_exceed_its_standard_errors(errors):
    centred = ROWS - ROWS.mean()
    limit = errors * standard_error(centred)
    assert is_better(centred + 1.01 * limit, errors=errors)
    assert not is_better(centred + 0.99 * limit, errors=errors)


def test_rows_are_compared_one_by_one():
    """A gain that all rows share is beyond doubt, however different the rows are."""
    assert is_better(100 * ROWS + 0.01, than=100 * ROWS)
    assert not is_better(100 * ROWS, than=100 * ROWS + 0.01)


def test_nan_is_never_better():
    assert not is_better([1.0, np.nan], than=[0.0, 0.0])
    assert not is_better([1.0, 1.0], than=[0.0, np.nan])


def test_the_simplest_fit_stays_unless_another_is_clearly_better():
    noise = 0.1 * ROWS
    assert simplest_as_good([ROWS, ROWS + noise - noise.mean(), ROWS + 1.0 + noise, ROWS + 1.0]) == 2
    assert simplest_as_good([ROWS]) == 0
