"""Counts and atoms: what is recognised, and that spreading can be undone."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unle.space import fit_x_space
from unle.space.marginals import find_cells

ROWS = 400


@eqx.filter_jit
def gathered(cells, rows):
    """Return the values behind rows: one program for all of them, where operations one by one would take seconds."""
    return jax.vmap(cells.gather)(rows)


def columns():
    """Return columns of data by name, each with the step of its lattice and the number of its atoms."""
    rng = np.random.default_rng(1)
    zeros = np.where(rng.uniform(size=ROWS) < 0.5, 0.0, rng.poisson(30.0, ROWS))
    return {
        "normal": (rng.normal(size=ROWS), 0.0, 0),
        "counts": (rng.poisson(2.0, ROWS).astype(float), 1.0, 0),
        "large counts": (rng.poisson(5000.0, ROWS).astype(float), 1.0, 0),
        "yes or no": (rng.integers(0, 2, ROWS).astype(float), 1.0, 0),
        "even numbers": (2.0 * rng.poisson(3.0, ROWS), 2.0, 0),
        "rounded": (np.round(rng.normal(size=ROWS), 1), 0.1, 0),
        "shares of seven": (rng.binomial(7, 0.4, ROWS) / 7, 1 / 7, 0),
        "censored": (np.maximum(rng.normal(size=ROWS), 0.0), 0.0, 1),
        "two walls": (np.clip(rng.normal(size=ROWS), -1.0, 1.0), 0.0, 2),
        "zero-inflated counts": (zeros, 1.0, 1),
        "an atom inside": (np.where(rng.uniform(size=ROWS) < 0.3, 0.5, rng.normal(size=ROWS)), 0.0, 1),
        "rarely at a wall": (np.minimum(rng.normal(size=ROWS), 1.8), 0.0, 1),
        "one tie": (np.append(rng.normal(size=ROWS - 2), [0.5, 0.5]), 0.0, 0),
    }


@pytest.mark.parametrize("name", columns())
def test_cells_are_recognised_whatever_the_units(name):
    values, step, atoms = columns()[name]
    for unit in (1.0, 1e-3, 250.0):
        cells = find_cells((unit * values)[:, None])
        whole = unit == 1.0 or step > 0  # other units have whole numbers no more
        assert not whole or np.isclose(cells.step[0], unit * step) or (name == "large counts" and unit != 1.0)
        assert np.isfinite(np.asarray(cells.atoms)).sum() == atoms


def test_spreading_can_be_undone():
    for name, (values, _, _) in columns().items():
        cells = find_cells(values[:, None])
        for u in (0.02, 0.5, 0.98):
            spread = cells.spread(values[:, None], u)
            back = gathered(cells, jnp.asarray(spread[:60], jnp.float32))
            np.testing.assert_allclose(back[:, 0], values[:60], atol=2e-5 * max(1, np.abs(values).max()), err_msg=name)


def test_spreading_keeps_the_order_and_fills_no_cell_twice():
    for values, _, _ in columns().values():
        cells = find_cells(values[:, None])
        low, high = (cells.spread(values[:, None], u)[:, 0] for u in (0.001, 0.999))
        order = np.argsort(values)
        distinct = np.diff(values[order]) > 0
        assert (low[order][1:][distinct] >= high[order][:-1][distinct]).all()


def test_a_space_standardises_the_middle_of_a_cell_and_finds_the_value_again():
    x = np.column_stack([values for values, _, _ in columns().values()])
    space = fit_x_space(x)
    back = jax.jit(jax.vmap(lambda row: space.inverse(space.forward(row))))(jnp.asarray(x[:20], jnp.float32))
    np.testing.assert_allclose(back, x[:20], rtol=2e-3, atol=2e-3)
    assert space.cells.which == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    lines = space.describe()
    assert "multiples of 1" in lines[1]
    assert "exactly 0 with positive probability" in lines[7]
    assert lines[0].startswith("x[0]: normal") or "scale" in lines[0]


def test_relations_between_counts_are_still_seen():
    rng = np.random.default_rng(2)
    a, b = rng.poisson(5.0, ROWS), rng.poisson(3.0, ROWS)
    space = fit_x_space(np.column_stack([a, b, a + b]).astype(float))
    assert space.dim == 2


def test_one_line_says_what_the_data_were_taken_for():
    rng = np.random.default_rng(0)
    counts, steps = rng.poisson(4.0, (500, 2)), rng.integers(0, 9, (500, 1)) / 4
    zeros = np.maximum(rng.normal(size=(500, 1)), 0)
    x = np.hstack([counts, steps, zeros, counts.sum(axis=1, keepdims=True), np.full((500, 1), 7.0)])
    assert fit_x_space(x.astype(float)).peculiarities == (
        "Recognised among the 6 numbers of x: 1 multiple of 0.25, 2 whole numbers, 1 often exactly 0, 1 constant, "
        "and more."
    )
    assert fit_x_space(rng.normal(size=(500, 3))).peculiarities == ""


def test_ends_at_which_data_pile_up_are_found_and_nothing_is_put_beyond_them():
    rng = np.random.default_rng(3)
    of_eight, counts = rng.binomial(8, rng.uniform(0, 1, ROWS)), rng.poisson(5.0, ROWS)
    censored = np.maximum(rng.normal(size=ROWS), 0.0)
    space = fit_x_space(np.column_stack([of_eight, counts, censored]).astype(float))
    np.testing.assert_array_equal(space.cells.ends, [[0.0, -np.inf, 0.0], [8.0, np.inf, np.inf]])
    beyond = space.cells.gather(jnp.array([9.3, 40.2, -0.8]))
    np.testing.assert_allclose(beyond, [8.0, 40.0, 0.0])
    is_lowest, is_highest = np.asarray(space.cell(jnp.array([0.0, 3.0, 1.2])))[3:]
    np.testing.assert_array_equal([is_lowest, is_highest], [[1, 0, 0], [0, 0, 0]])
    is_lowest, is_highest = np.asarray(space.cell(jnp.array([8.0, 0.0, 0.0])))[3:]
    np.testing.assert_array_equal([is_lowest, is_highest], [[0, 0, 1], [1, 0, 0]])


def test_a_few_values_far_apart_are_levels_whose_cells_meet_halfway():
    rng = np.random.default_rng(4)
    titres = 2.0 ** np.round(np.clip(rng.normal(4, 2, size=(ROWS, 2)), 0, 9))
    x = np.column_stack([titres, rng.poisson(4.0, ROWS)])
    cells = find_cells(x)
    assert cells.step.tolist() == [0.0, 0.0, 1.0]
    assert cells.which == [0, 1, 2]
    assert "one of" in cells.describe(0)
    rows = jnp.asarray(x[:60], jnp.float32)
    for u in (0.02, 0.5, 0.98):
        spread = jax.jit(jax.vmap(cells.spread, (0, None)))(rows, u)
        np.testing.assert_allclose(gathered(cells, spread), rows)
        np.testing.assert_allclose(cells.spread(np.asarray(rows), u), spread, rtol=1e-6)
    low, high = (cells.spread(np.array([[4.0, 16.0, 2.0]]), u)[0] for u in (0.0, 1.0))
    np.testing.assert_allclose([low, high], [[3.0, 12.0, 1.5], [6.0, 24.0, 2.5]])
    tail = np.concatenate([rng.poisson(3.0, ROWS), [40.0, 300.0]])[:, None]
    assert find_cells(tail).step.tolist() == [1.0]  # a rare value far away is no level


def test_an_observation_between_the_values_of_discrete_data_is_told():
    rng = np.random.default_rng(5)
    x = np.column_stack([rng.poisson(5.0, ROWS), 2.0 ** rng.integers(0, 9, ROWS), rng.normal(size=ROWS)]).astype(float)
    space = fit_x_space(x)
    assert space.check_observation([3.0, 8.0, 0.2]) == []
    counts, titres = space.check_observation([3.5, 6.0, 0.2])
    assert counts == "x_o[0] = 3.5, but the simulations give multiples of 1 there"
    assert titres == "x_o[1] = 6, but the simulations give one of 9 values there"
    assert "x_o[1] = 1024" in space.check_observation([3.0, 1024.0, 0.2])[0]
    assert space.peculiarities == "Recognised among the 3 numbers of x: 1 whole number, 1 of a few values."
