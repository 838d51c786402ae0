"""Standardised spaces: bijections with the right determinant, whatever is constant or redundant."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from unle.errors import InputError
from unle.space import fit_theta_space, fit_x_space


@pytest.fixture(scope="module")
def simulations():
    """Nine coordinates: constant ones at 0 and 5, redundant ones at 4 and 7, a log and an asinh scale."""
    rng = np.random.default_rng(7)
    n = 2_000
    a, b = rng.normal(10, 2, n), rng.uniform(-1, 1, n)
    population = np.exp(rng.normal(-2, 3, n))
    noise = rng.standard_t(2, n)
    return np.column_stack(
        [np.full(n, 30.0), a, b, population, 2 * a - 3 * b + 1, np.zeros(n), noise, 5 * population, a * b]
    ).astype(np.float32)


@pytest.fixture(scope="module")
def space(simulations):
    return fit_x_space(simulations)


def test_constant_and_redundant_coordinates_are_left_out(space):
    assert (space.modelled, space.redundant, space.constant) == ((1, 2, 3, 6, 8), (4, 7), (0, 5))
    assert (space.dim_x, space.dim) == (9, 5)
    assert space.standardiser.marginals.names() == (
        "identity",
        "identity",
        "log",
        "asinh",
        "identity",
        "identity",
        "log",
    )


@pytest.mark.usefixtures("strict_ranks")
def test_inverse_restores_every_coordinate(space, simulations):
    back = jax.jit(jax.vmap(lambda x: space.inverse(space.forward(x))))(jnp.asarray(simulations))
    np.testing.assert_allclose(back, simulations, rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(back[:, [0, 5]], simulations[:, [0, 5]])


def test_forward_undoes_inverse(space):
    w = 2 * jr.normal(jr.key(0), (100, space.dim))
    again = jax.jit(jax.vmap(lambda w: space.forward(space.inverse(w))))(w)
    np.testing.assert_allclose(again, w, atol=2e-4)


def test_a_table_is_standardised_like_its_rows(space, simulations):
    by_row = np.asarray(jax.jit(jax.vmap(space.forward))(jnp.asarray(simulations)))
    np.testing.assert_allclose(space.forward_table(simulations.astype(float)), by_row, rtol=1e-4, atol=1e-4)
    theta = simulations[:, [1, 3, 6]]
    of_theta = fit_theta_space(theta)
    by_row = np.asarray(jax.jit(jax.vmap(of_theta.forward))(jnp.asarray(theta)))
    np.testing.assert_allclose(of_theta.forward_table(theta.astype(float)), by_row, rtol=1e-4, atol=1e-4)
    assert not np.allclose(of_theta.forward_table(1.01 * theta.astype(float)), by_row, rtol=1e-4, atol=1e-4)


def test_result_is_standardised(space, simulations):
    w = np.asarray(jax.jit(jax.vmap(space.forward))(jnp.asarray(simulations)))
    np.testing.assert_allclose(w.mean(0), 0, atol=1e-3)
    np.testing.assert_allclose(w.std(0), 1, atol=1e-3)


def test_log_det_is_that_of_the_modelled_block(space, simulations):
    x = jnp.asarray(simulations[:50])
    jacobian = np.asarray(jax.jit(jax.vmap(jax.jacfwd(space.forward)))(x), np.float64)
    expected = np.linalg.slogdet(jacobian[:, :, list(space.modelled)])[1]
    np.testing.assert_allclose(jax.jit(jax.vmap(space.log_det))(x), expected, rtol=1e-4, atol=1e-4)
    others = np.setdiff1d(np.arange(9), space.modelled)
    assert (jacobian[:, :, others] == 0).all()


def test_spaces_are_pytrees_that_trace_once(space, simulations):
    traces = []

    @eqx.filter_jit
    def forward(space, x):
        traces.append(1)
        return space.forward(x)

    forward(space, jnp.asarray(simulations[0]))
    forward(jax.tree.map(lambda leaf: leaf, space), jnp.asarray(simulations[1]))
    assert len(traces) == 1


def test_description_has_one_line_per_coordinate(space):
    lines = space.describe()
    assert len(lines) == 9
    assert lines[0] == "x[0]: 30 in every simulation, not modelled"
    assert lines[4] == "x[4]: follows from x[1], x[2], not modelled"
    assert lines[7] == "x[7]: follows from x[3], not modelled"
    assert lines[3].startswith("x[3]: log scale, ")
    named = space.describe(list("abcdefghi"))
    assert named[4] == "e: follows from b, c, not modelled"


def test_few_simulations_do_not_make_everything_redundant():
    x = np.random.default_rng(0).normal(size=(12, 30))
    assert fit_x_space(x).modelled == tuple(range(30))


def test_nearly_redundant_is_kept():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 500))
    assert fit_x_space(np.column_stack([a, a + 1e-2 * b])).dim == 2
    assert fit_x_space(np.column_stack([a, a + 1e-6 * b])).dim == 1


def test_earliest_coordinates_are_kept():
    a, b = np.random.default_rng(0).normal(size=(2, 500))
    assert fit_x_space(np.column_stack([a + b, a, b])).modelled == (0, 1)


def test_rounding_noise_counts_as_constant():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=500)
    x = np.column_stack([1e5 * (1 + 1e-8 * noise), 1e5 * (1 + 1e-4 * noise), 1e-30 * noise])
    assert fit_x_space(x).constant == (0,)


def test_outliers_do_not_set_the_scale():
    rng = np.random.default_rng(0)
    # Clusters of outliers on both sides, which no marginal transform straightens.
    x = np.where(rng.random((3_000, 1)) < 0.004, 300.0, 0.0) * rng.choice([-1, 1], (3_000, 1))
    x = x + rng.normal(size=(3_000, 1))
    space = fit_x_space(x)
    bulk = np.asarray(jax.jit(jax.vmap(space.forward))(jnp.asarray(x[np.abs(x[:, 0]) < 10], jnp.float32)))
    assert 0.5 < bulk.std() < 2


def test_observation_from_the_simulator_raises_no_alarm():
    """1000 simulations of ten coordinates with light and heavy tails; fresh observations from the same."""
    rng = np.random.default_rng(3)

    def simulate(n):
        return np.column_stack(
            [
                rng.normal(size=(n, 4)),
                rng.uniform(size=(n, 2)),
                rng.exponential(size=(n, 2)),
                rng.standard_t(2, (n, 2)),
            ]
        )

    space = fit_x_space(simulate(1_000))
    alarms = len({line.split(":")[0] for line in space.check_observation(simulate(300))})
    assert alarms <= 3


@pytest.mark.parametrize(
    ("coordinate", "value", "sentence"),
    [
        (1, 41.2, r"x_o\[1\] = 41.2 lies outside the simulations \(range .* to .*\), .* standard deviations"),
        (2, -3.0, r"x_o\[2\] = -3 lies outside the simulations \(range -0.99.* to 0.99.*\)"),
        (3, -1.0, r"x_o\[3\] = -1 lies outside the simulations"),
        (3, 1e9, r"x_o\[3\] = 1e\+09 lies outside the simulations"),
        (1, 9e4, r"x_o\[1\] = 9e\+04 lies outside .* standard deviations beyond them: check its units first"),
        (0, 31.0, r"x_o\[0\] = 31, but every simulation gave 30"),
        (5, 1e-9, r"x_o\[5\] = 1e-09, but every simulation gave 0"),
        (
            7,
            0.5,
            r"x_o\[7\] = 0.5, but in every simulation the other coordinates determine it, and here they give",
        ),
    ],
)
def test_unlike_observation_is_reported(space, simulations, coordinate, value, sentence):
    x_o = simulations[0].astype(float)
    assert space.check_observation(x_o) == []
    x_o[coordinate] = value
    lines = space.check_observation(x_o)
    assert any(line.startswith(f"x_o[{coordinate}]") for line in lines)
    with pytest.raises(AssertionError, match=sentence):
        raise AssertionError("\n".join(lines))
    (named,) = [
        line for line in space.check_observation(x_o, list("abcdefghi")) if line.startswith("abcdefghi"[coordinate])
    ]
    assert named


def test_several_observations_are_checked_row_by_row(space, simulations):
    rows = simulations[:3].astype(float)
    rows[1, 2] = 5.0
    lines = space.check_observation(rows)
    assert all(line.startswith("row 1: x_o[") for line in lines)
    assert lines


@pytest.mark.parametrize(
    ("x_o", "sentence"),
    [
        (np.zeros(4), r"expected x_o of shape \(9,\) or \(n, 9\); got \(4,\)"),
        (np.full(9, np.nan), r"expected a finite observation; got x_o\[0\] = \[nan\]"),
    ],
)
def test_unusable_observation_is_refused(space, x_o, sentence):
    with pytest.raises(InputError, match=sentence):
        space.check_observation(x_o)


@pytest.mark.parametrize(
    ("x", "sentence"),
    [
        (np.ones((10, 3)), "expected simulations that differ; got 10 equal rows"),
        (np.zeros(10), r"expected x of shape \(n, d\) with at least two rows; got \(10,\)"),
        (np.zeros((1, 3)), "at least two rows"),
        (np.array([[0.0, 1.0], [2.0, np.inf]]), r"got x\[1, 1\] = inf"),
        (np.array([[0.0, 1.0], [2.0, 1e39]]), "within the range of float32"),
    ],
)
def test_unusable_simulations_are_refused(x, sentence):
    with pytest.raises(InputError, match=sentence):
        fit_x_space(x)


def test_theta_of_a_log_normal_prior_is_put_on_a_log_scale():
    rng = np.random.default_rng(2)
    theta = np.column_stack([np.exp(rng.normal(-3, 0.5, 2_000)), rng.uniform(-1, 1, 2_000), np.full(2_000, 4.0)])
    space = fit_theta_space(theta)
    assert space.standardiser.marginals.names() == ("log", "identity", "identity")
    z = np.asarray(jax.jit(jax.vmap(space.forward))(jnp.asarray(theta, jnp.float32)))
    np.testing.assert_allclose(z.std(0), [1, 1, 0], atol=1e-3)
    back = jax.jit(jax.vmap(space.inverse))(jnp.asarray(z))
    np.testing.assert_allclose(back, theta, rtol=1e-4, atol=1e-5)
    assert np.isfinite(space.forward(jnp.array([-1.0, 5.0, 4.0]))).all()


def test_a_wide_table_is_fitted_in_reasonable_time_and_order():
    rng = np.random.default_rng(1)
    mixing = rng.normal(size=(6, 40))
    x = rng.normal(size=(1_000, 6)) @ mixing
    space = fit_x_space(x)
    assert space.modelled == tuple(range(6))
    back = jax.jit(jax.vmap(lambda row: space.inverse(space.forward(row))))(jnp.asarray(x, jnp.float32))
    np.testing.assert_allclose(back, x, atol=1e-3)
