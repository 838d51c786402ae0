"""What AUNLE says about simulations it cannot learn from."""

from types import SimpleNamespace

import jax.random as jr
import numpy as np
import pytest

import unle
from unle.methods.training_pairs import order_of_rows, standardised_pairs, valid_pairs


@pytest.fixture(scope="module")
def prior():
    return unle.Prior.uniform(low=[-1.0, -1.0], high=[1.0, 1.0], names=["a", "b"])


@pytest.fixture
def pair(prior):
    theta = prior.sample(100, seed=0).astype(float)
    return theta, theta + np.random.default_rng(0).normal(size=(100, 2))


def test_a_simulator_after_the_prior(prior):
    method = SimpleNamespace(prior=prior, base=unle.batched(lambda theta, rng: theta))  # the type checks would stop it
    with pytest.raises(unle.InputError, match=r"after the prior; got a Batched; try AUNLE\(prior\)"):
        unle.AUNLE.__check_init__(method)


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


def test_invalid_rows_are_not_trained_on(prior, pair):
    theta, x = pair
    x[:5] = np.nan
    kept, _ = valid_pairs((theta, x), prior)
    assert len(kept) == 95


def test_the_order_of_rows_does_not_matter(prior, pair):
    theta, x = pair
    x[::7] = np.nan
    key = jr.key(0)

    def standardised(order):
        return standardised_pairs(key, (theta[order], x[order]), prior, members=2)

    one, *others = (standardised(o) for o in (np.arange(100), np.arange(100)[::-1], np.argsort(x[:, 0])))
    for other in others:
        for a, b in zip(
            (*one.rows[:2], one.theta, one.valid), (*other.rows[:2], other.theta, other.valid), strict=True
        ):
            np.testing.assert_array_equal(a, b)
    first = np.asarray(one.theta)[:50, 0]
    assert not np.array_equal(first, theta[:50, 0])  # and it is no order that anybody made


def test_the_order_does_not_depend_on_the_units_of_x(prior, pair):
    theta, x = pair
    assert order_of_rows(theta, x).tolist() == order_of_rows(theta, 1e6 * x + 3).tolist()


def test_an_ensemble_needs_members(prior):
    with pytest.raises(unle.InputError, match="at least one ensemble member"):
        unle.AUNLE(prior, members=0)


def test_steps_of_other_libraries_are_answered(prior):
    method = unle.AUNLE(prior)
    with pytest.raises(AttributeError, match=r"no attribute 'append_simulations'; try posterior = unle.AUNLE\(prior\)"):
        method.append_simulations  # noqa: B018
    with pytest.raises(AttributeError, match="has no attribute 'anything'$"):
        method.anything  # noqa: B018


def test_simulations_are_added_to_others():
    first = unle.Simulations.from_arrays(np.zeros((3, 1)), np.ones((3, 2)))
    both = first + unle.Simulations.from_arrays(np.ones((2, 1)), np.zeros((2, 2)))
    assert both.theta.ravel().tolist() == [0, 0, 0, 1, 1]
    with pytest.raises(TypeError):
        first + 1
