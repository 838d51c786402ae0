"""Measurements in x that look alike are found."""

import jax.numpy as jnp
import numpy as np
import pytest

import unle
from unle.space import fit_x_space, repeated_blocks

THETA = np.random.default_rng(0).normal(size=(1000, 2))


def measured(k, *, spread=1.0, seed=1):
    """Return k measurements of two numbers whose spread depends on theta."""
    noise = np.random.default_rng(seed).normal(size=(len(THETA), k, 2)) * np.exp(0.5 * THETA[:, None, :1])
    return THETA[:, None, :] + spread * noise


def test_measurements_that_stand_together_or_apart_are_found():
    y = measured(4)
    assert repeated_blocks(THETA, y.reshape(1000, 8))[0] == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert repeated_blocks(THETA, y.swapaxes(1, 2).reshape(1000, 8))[0] == ((0, 4), (1, 5), (2, 6), (3, 7))


def test_single_numbers_are_measurements_too():
    assert repeated_blocks(THETA, measured(5)[:, :, 0]) == (((0,), (1,), (2,), (3,), (4,)),)


def test_a_monotone_scale_and_outliers_change_nothing():
    y = np.exp(measured(4).reshape(1000, 8))
    y[3, 2] = 1e12
    assert len(repeated_blocks(THETA, y)[0]) == 4


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
    assert repeated_blocks(THETA, y.reshape(1000, 8)) == ()


def test_trials_of_a_time_series_are_found_among_coarser_cuts():
    series, rng = np.zeros((1000, 5, 6)), np.random.default_rng(2)
    value = rng.normal(size=(1000, 5))
    for i in range(6):
        value = 0.7 * value + np.sqrt(1 - 0.49) * rng.normal(size=(1000, 5))
        series[:, :, i] = THETA[:, :1] + value
    lengths = [len(blocks) for blocks in repeated_blocks(THETA, series.reshape(1000, 30))]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] == 30  # as far as single samples go, they are alike too


def test_a_very_long_x_is_left_alone():
    assert repeated_blocks(THETA, np.tile(measured(2).reshape(1000, 4), 600)) == ()


def test_few_rows_are_not_judged_and_one_number_is_no_repetition():
    y = measured(4).reshape(1000, 8)
    assert repeated_blocks(THETA[:100], y[:100]) == ()
    assert repeated_blocks(THETA, y[:, :1]) == ()


@pytest.mark.parametrize(
    ("name", "expected"),
    [("slcp", 4), ("two_moons", 1), ("gaussian_linear", 1), ("gaussian_linear_uniform", 1), ("gaussian_mixture", 1)]
    + [("bimodal", 1), ("bernoulli_glm", 1)],
)
def test_of_the_benchmark_tasks_slcp_alone_repeats_itself(name, expected):
    task = unle.task(name)
    for seed in range(3):
        theta = task.prior.sample(1000, seed=seed)
        found = repeated_blocks(theta, np.asarray(task.simulate(theta, seed + 1000)))
        assert (len(found[0]) if found else 1) == expected


def test_repeated_measurements_are_standardised_alike():
    y = np.exp(3 * measured(3)).swapaxes(1, 2).reshape(1000, 6)
    blocks = repeated_blocks(THETA, y)[0]
    space = fit_x_space(y, blocks)

    def are_alike(space):
        parts = space.standardiser.mean, space.standardiser.scale, space.standardiser.marginals.kind
        return all(
            (np.asarray(part)[np.array(blocks)] == np.asarray(part)[np.array(blocks[0])]).all() for part in parts
        )

    assert are_alike(space)
    assert not are_alike(fit_x_space(y))
    row = jnp.asarray(y[5], jnp.float32)
    np.testing.assert_allclose(space.inverse(space.forward(row)), row, rtol=1e-4)


def test_blocks_with_a_constant_coordinate_are_standardised_as_ever():
    y = measured(2).reshape(1000, 4)
    y[:, 3] = 1.0
    assert fit_x_space(y, ((0, 1), (2, 3))).constant == (3,)
