"""Repeated measurements in x are recognised, and nothing else is."""

import jax.numpy as jnp
import numpy as np
import pytest

import unle
from unle.space import fit_x_space, repeated_blocks

RNG = np.random.default_rng(0)
THETA = RNG.normal(size=(1000, 2))


def measured(k, *, spread=1.0):
    """Return k measurements of two numbers whose spread depends on theta."""
    noise = RNG.normal(size=(len(THETA), k, 2)) * np.exp(0.5 * THETA[:, None, :1])
    return THETA[:, None, :] + spread * noise


def test_measurements_that_stand_together_or_apart_are_found():
    y = measured(4)
    assert repeated_blocks(THETA, y.reshape(1000, 8)) == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert repeated_blocks(THETA, y.swapaxes(1, 2).reshape(1000, 8)) == ((0, 4), (1, 5), (2, 6), (3, 7))


def test_single_numbers_are_measurements_too():
    assert repeated_blocks(THETA, measured(5)[:, :, 0]) == ((0,), (1,), (2,), (3,), (4,))


def test_a_monotone_scale_and_outliers_change_nothing():
    y = np.exp(measured(4).reshape(1000, 8))
    y[3, 2] = 1e12
    assert repeated_blocks(THETA, y) is not None


@pytest.mark.parametrize(
    "changed",
    [
        lambda y: y[:, 0] + 0.3,  # another mean
        lambda y: y[:, 0] * 1.3,  # another spread
        lambda y: y[:, 0, ::-1],  # of other parameters
        lambda y: y[:, 0] + 0.2 * THETA**2,  # another dependence on theta
    ],
)
def test_one_measurement_that_is_different_spoils_it(changed):
    y = measured(4)
    y[:, 0] = changed(y)
    assert repeated_blocks(THETA, y.reshape(1000, 8)) is None


def test_few_rows_are_not_judged_and_one_number_is_no_repetition():
    y = measured(4).reshape(1000, 8)
    assert repeated_blocks(THETA[:100], y[:100]) is None
    assert repeated_blocks(THETA, y[:, :1]) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [("slcp", 4), ("two_moons", 0), ("gaussian_linear", 0), ("gaussian_linear_uniform", 0), ("gaussian_mixture", 0)]
    + [("bimodal", 0), ("bernoulli_glm", 0)],
)
def test_of_the_benchmark_tasks_slcp_alone_repeats_itself(name, expected):
    task = unle.task(name)
    for seed in range(3):
        theta = task.prior.sample(1000, seed=seed)
        found = repeated_blocks(theta, np.asarray(task.simulate(theta, seed + 1000)))
        assert len(found or ()) == expected


def test_repeated_measurements_are_standardised_alike():
    y = np.exp(3 * measured(3)).swapaxes(1, 2).reshape(1000, 6)
    blocks = repeated_blocks(THETA, y)
    assert blocks is not None
    space = fit_x_space(y, blocks)
    for name in ("mean", "scale"):
        values = np.asarray(getattr(space.standardiser, name))[np.array(blocks)]
        assert (values == values[0]).all()
    row = jnp.asarray(y[5], jnp.float32)
    np.testing.assert_allclose(space.inverse(space.forward(row)), row, rtol=1e-4)
    apart = fit_x_space(y)
    assert not (np.asarray(apart.standardiser.mean)[np.array(blocks)] == np.asarray(apart.standardiser.mean)[0]).all()


def test_blocks_with_a_constant_coordinate_are_standardised_as_ever():
    y = measured(2).reshape(1000, 4)
    y[:, 3] = 1.0
    assert fit_x_space(y, ((0, 1), (2, 3))).constant == (3,)
