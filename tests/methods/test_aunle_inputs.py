"""What AUNLE says about simulations it cannot learn from."""

import numpy as np
import pytest

import unle
from unle.methods.inputs import valid_pairs


@pytest.fixture(scope="module")
def prior():
    return unle.Prior.uniform(low=[-1.0, -1.0], high=[1.0, 1.0], names=["a", "b"])


@pytest.fixture
def pair(prior):
    theta = prior.sample(100, seed=0).astype(float)
    return theta, theta + np.random.default_rng(0).normal(size=(100, 2))


def test_theta_of_another_dimension_than_the_prior(prior, pair):
    theta, x = pair
    with pytest.raises(unle.InputError, match="2 columns, as the prior; got 1"):
        unle.AUNLE(prior).fit((theta[:, :1], x))


def test_theta_and_x_of_different_lengths(prior, pair):
    theta, x = pair
    with pytest.raises(unle.InputError, match="one row of x for each row of theta"):
        unle.AUNLE(prior).fit((theta[:-1], x))


def test_theta_outside_the_prior_names_the_row(prior, pair):
    theta, x = pair
    theta[7] = [3.0, 0.0]
    with pytest.raises(unle.InputError, match="1 rows outside its support.*row 7"):
        unle.AUNLE(prior).fit((theta, x))


def test_no_valid_row(prior, pair):
    theta, x = pair
    with pytest.raises(unle.InputError, match="no simulation is valid"):
        unle.AUNLE(prior).fit((theta, np.full_like(x, np.nan)))


def test_one_valid_row(prior, pair):
    theta, x = pair
    x[1:] = np.nan
    with pytest.raises(unle.InputError, match="at least 32 valid simulations; got 1"):
        unle.AUNLE(prior).fit((theta, x))


def test_constant_data(prior, pair):
    theta, x = pair
    with pytest.raises(unle.InputError):
        unle.AUNLE(prior).fit((theta, np.ones_like(x)))


def test_something_that_is_no_pair(prior):
    with pytest.raises(unle.InputError, match="a pair"):
        unle.AUNLE(prior).fit(3)


def test_invalid_rows_are_dropped_with_their_count(prior, pair):
    theta, x = pair
    x[:5] = np.nan
    with pytest.warns(unle.UnleWarning, match="5 of 100 simulations are invalid"):
        kept, _ = valid_pairs((theta, x), prior)
    assert len(kept) == 95


def test_an_ensemble_needs_members(prior):
    with pytest.raises(unle.InputError, match="at least one ensemble member"):
        unle.AUNLE(prior, members=0)
