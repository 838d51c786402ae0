"""Laws that every task obeys, run over the registry, and what each task's simulator must look like."""

import pickle

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.stats import ks_2samp, kstest
from scipy.stats import t as t_law

from unle.errors import InputError
from unle_bench import TASKS, task
from unle_bench.tasks import bernoulli_glm, gaussian_mixture, lotka_volterra, sir, slcp, slcp_distractors, two_moons

NAMES = [name for name in TASKS if TASKS[name].draw_posterior is not None]
# A parameter with nothing special about it, and a small step from there, per task.
THETA = {
    "two_moons": ([0.3, -0.2], [-0.006, 0.006]),
    "slcp": ([0.7, -2.9, -1.2, 0.9, 0.6], [0.2, -0.1, -0.05, 0.05, 0.05]),
    "lotka_volterra": ([0.7, 0.1, 0.9, 0.12], [0.001, 0.0, 0.0, 0.0]),
    "gaussian_linear_uniform": (np.linspace(-0.9, 0.9, 10), np.full(10, 0.07)),
    "bimodal": ([0.4, -0.8], [0.18, 0.13]),
    "sir": ([0.5, 0.12], [0.002, 0.001]),
    "gaussian_linear": (np.linspace(-0.9, 0.9, 10), np.full(10, 0.07)),
    "gaussian_mixture": ([3.0, -9.5], [0.03, 0.06]),
    "bernoulli_glm": (np.linspace(-0.9, 0.9, 10), np.full(10, 0.05)),
    "bernoulli_glm_raw": (np.linspace(-0.9, 0.9, 10), np.full(10, 0.05)),
    "slcp_distractors": ([0.7, -2.9, -1.2, 0.9, 0.6], [0.2, -0.1, -0.05, 0.05, 0.05]),
}
SAME_LIKELIHOOD = {"slcp_distractors", "bernoulli_glm_raw", "gaussian_linear"}  # as another task's
VARIES = {"sir": 3, "bernoulli_glm_raw": None}  # a coordinate that a shift of half a sd shows in; 0 for all others
# False-alarm rate of one comparison; there are about a hundred in this file.
RARE = 1e-4


def test_names_are_those_of_the_benchmark():
    assert set(THETA) == set(NAMES)
    assert len(NAMES) == 11
    assert all(TASKS[name].name == name for name in TASKS)


def test_unknown_name_lists_the_known_ones():
    with pytest.raises(InputError, match=r"two_moons, slcp, .*bimodal, .*; got 'three_moons'"):
        task("three_moons")


@pytest.mark.parametrize("name", NAMES)
def test_shapes_and_seeds(name):
    one = task(name)
    theta = one.prior.sample(5, seed=1)
    x = one.simulate(theta, 2)
    assert x.shape == (5, one.dim_x)
    assert theta.shape == (5, one.dim_theta)
    assert len(one.names_x) == len(set(one.names_x)) == one.dim_x
    assert np.isfinite(x).all()
    np.testing.assert_array_equal(x, one.simulate(theta, 2))
    assert (x != one.simulate(theta, 3)).any(axis=1).mean() >= 0.8  # an epidemic may not take off, twice
    single = one.simulator(theta[0], np.random.default_rng(0))
    assert single.shape == (one.dim_x,)
    assert single.dtype == x.dtype == np.float32
    for i in (1, 10):
        assert one.observation(i).shape == (one.dim_x,)
        assert np.isfinite(one.prior.log_prob(one.true_parameters(i)))
    draws = one.reference(one.observation(1), 7, seed=3)
    assert draws.shape == (7, one.dim_theta)
    assert len(np.unique(draws, axis=0)) == 7
    np.testing.assert_array_equal(draws, one.reference(one.observation(1), 7, seed=3))
    assert (draws != one.reference(one.observation(1), 7, seed=4)).any()
    assert np.isfinite(one.prior.log_prob(draws)).all()
    assert one.description


@pytest.mark.parametrize("name", NAMES)
def test_simulator_survives_a_trip_to_a_worker(name):
    simulator = pickle.loads(pickle.dumps(task(name).simulator))
    theta = task(name).prior.sample(1, seed=1)[0]
    np.testing.assert_array_equal(
        simulator(theta, np.random.default_rng(0)), task(name).simulator(theta, np.random.default_rng(0))
    )


@pytest.mark.parametrize("name", NAMES)
def test_row_by_row_batched_and_on_a_device_have_one_law(name):
    one, n = task(name), 400
    theta = np.asarray(THETA[name][0], dtype=np.float32)
    rng = np.random.default_rng(7)
    rows = np.stack([one.simulator(theta, rng) for _ in range(n)])
    batch = one.simulate(np.tile(theta, (n, 1)), 8)
    device = np.asarray(jax.jit(jax.vmap(one.on_device, (0, None)))(jr.split(jr.key(9), n), jnp.asarray(theta)))
    assert device.shape == batch.shape
    rare = RARE / max(1, one.dim_x // 10)
    for j in range(one.dim_x):
        assert ks_2samp(rows[:, j], batch[:, j]).pvalue > rare
        assert ks_2samp(rows[:, j], device[:, j]).pvalue > rare
    j = VARIES.get(name, 0)
    if j is not None:  # half a sd would be seen
        assert ks_2samp(rows[:, j], device[:, j] + 0.5 * device[:, j].std()).pvalue < RARE


@pytest.mark.parametrize("name", [name for name in NAMES if name not in SAME_LIKELIHOOD])
def test_likelihood_is_the_simulators_density(name):
    """With x ~ p(. | a), the mean of p(x | b) / p(x | a) is one; and the sd of the data is in the density."""
    one, n = task(name), 4000
    start, step = (np.asarray(part, dtype=np.float64) for part in THETA[name])
    x = one.simulate(np.tile(start, (n, 1)), 11).astype(np.float64)
    both = np.stack([start, start + step])
    if name == "sir":  # one solution for all rows, here and below
        logs = sir.log_infected(both)
        rest = np.log1p(-np.exp(logs))
        logs = x @ (logs[1] - logs[0]) + (1000 - x) @ (rest[1] - rest[0])
        np.testing.assert_allclose(np.subtract(*one.log_likelihood(both, x[0])[::-1]), logs[0], rtol=1e-3, atol=1e-3)
        logs = np.stack([np.zeros(n), logs], axis=1)
    elif name == "lotka_volterra":
        logs = lotka_volterra.log_populations(both)
        logs = -0.5 * np.sum(((np.log(x)[:, None] - logs) / 0.1) ** 2, axis=2)
        np.testing.assert_allclose(
            one.log_likelihood(both, x[0])[1] - one.log_likelihood(both, x[0])[0],
            logs[0, 1] - logs[0, 0],
            rtol=1e-3,
        )
    else:
        logs = np.stack([one.log_likelihood(both, row) for row in x])
    ratio = np.exp(logs[:, 1] - logs[:, 0])
    assert abs(ratio.mean() - 1) < 4 * ratio.std() / np.sqrt(n)
    assert ratio.std() > 0.05  # or the test could not see a wrong density
    narrow = ratio**2  # as if the noise had half its variance
    assert abs(narrow.mean() - 1) > 4 * narrow.std() / np.sqrt(n)


@pytest.mark.parametrize("name", NAMES)
def test_refuses_wrong_shapes(name):
    one = task(name)
    with pytest.raises(InputError, match=r"expected theta of shape"):
        one.simulate(np.zeros(one.dim_theta), 0)
    with pytest.raises(InputError, match=r"expected theta of shape"):
        one.log_likelihood(np.zeros((3, one.dim_theta + 1)), np.zeros(one.dim_x))
    with pytest.raises(InputError, match=r"expected one x of shape"):
        one.reference(np.zeros(one.dim_x + 1), 10)
    with pytest.raises(InputError, match=r"expected finite data"):
        one.reference(np.full(one.dim_x, np.nan), 10)
    with pytest.raises(InputError, match=r"positive number of draws"):
        one.reference(one.observation(1), 0)
    for i in (0, 11):
        with pytest.raises(InputError, match=r"from 1 to 10"):
            one.observation(i)


def test_distractors_hide_slcp():
    one, n = slcp_distractors.TASK, 3000
    theta = np.tile(THETA["slcp"][0], (n, 1))
    x = one.simulate(theta, 0)
    informative = np.stack([slcp_distractors.split(row)[0] for row in x])
    plain = slcp.TASK.simulate(theta, 1)
    for j in range(8):
        assert ks_2samp(informative[:, j], plain[:, j]).pvalue > RARE
    where = [22, 33, 23, 67, 42, 21, 16, 90]  # as found in the benchmark's own observations
    np.testing.assert_array_equal(x[0, where], informative[0])
    # one coordinate of a multivariate Student-t is a Student-t, whose scale is the length of a row of the factor
    noise = np.stack([slcp_distractors.split(row)[1] for row in x]).astype(np.float64)
    locations, factors, _ = slcp_distractors._noise()
    for j in (0, 50, 91):
        scales = np.linalg.norm(factors[:, j], axis=1)
        for wider, right in ((1, True), (3, False)):
            levels = t_law(2, locations[:, j], wider * scales).cdf(noise[:, j : j + 1]).mean(axis=1)
            assert (kstest(levels, "uniform").pvalue > RARE) == right


def test_sir_solves_the_equations():
    theta = np.concatenate([sir.TASK.prior.sample(12, seed=4), [[2.6, 0.08]]]).astype(np.float64)
    ours = sir.log_infected(theta)
    for row, (beta, gamma) in zip(ours, theta, strict=True):

        def slope(_, state, beta=beta, gamma=gamma):
            return [-beta * np.exp(state[1]), beta * np.exp(state[0]) - gamma]

        days = 17.0 * np.arange(10)
        exact = solve_ivp(slope, (0, days[-1]), sir.START, "DOP853", days, rtol=1e-10, atol=1e-10).y[1]
        np.testing.assert_allclose(row, exact, atol=2e-3)


def test_sir_row_by_row_is_the_same_computation_and_its_failure_a_row_of_nan():
    for theta in sir.TASK.prior.sample(5, seed=2):
        one = sir.simulator(theta, np.random.default_rng(3))
        np.testing.assert_allclose(one, sir.simulate_rows(theta[None], np.random.default_rng(3))[0], atol=1)
    hopeless = np.array([np.nan, 1.0], dtype=np.float32)
    assert np.isnan(sir.simulator(hopeless, np.random.default_rng(0))).all()
    assert np.isnan(sir.simulate_rows(hopeless[None], np.random.default_rng(0))).all()


def test_glm_has_a_smooth_prior_and_sufficient_sums():
    covariance = np.linalg.inv(bernoulli_glm.PRECISION)
    draws = bernoulli_glm.PRIOR.sample(20_000, seed=0)
    spread = np.sqrt((covariance**2 + np.outer(np.diag(covariance), np.diag(covariance))) / 20_000)
    assert (np.abs(np.cov(draws.T) - covariance) < 4.5 * spread).all()
    y = bernoulli_glm.TASKS["bernoulli_glm_raw"].simulate(draws[:1], 1)[0].astype(np.float64)
    direct = np.log(1 / (1 + np.exp(-(2 * y - 1) * (bernoulli_glm.DESIGN @ draws[0])))).sum()
    np.testing.assert_allclose(
        bernoulli_glm.TASKS["bernoulli_glm_raw"].log_likelihood(draws[:1], y)[0], direct, rtol=1e-9
    )


def test_mixture_components_differ_from_row_to_row():
    x = gaussian_mixture.simulate_rows(np.zeros((4000, 2)), np.random.default_rng(0))
    narrow = np.mean(np.abs(x).max(axis=1) < 0.3)  # one index per batch would give 0.05 or 0.99
    assert narrow == pytest.approx(0.5 * (0.997**2 + 0.236**2), abs=0.035)


def test_moons_have_the_right_radius_and_angle():
    theta = np.tile([0.4, 0.1], (20_000, 1))
    x = two_moons.simulate_rows(theta, np.random.default_rng(0)).astype(np.float64)
    z_0, z_1 = 0.5 / np.sqrt(2), -0.3 / np.sqrt(2)
    right, up = x[:, 0] + z_0 - 0.25, x[:, 1] - z_1
    radius, angle = np.hypot(right, up), np.arctan2(up, right)
    assert kstest((radius - 0.1) / 0.01, "norm").pvalue > RARE
    assert kstest(angle / np.pi + 0.5, "uniform").pvalue > RARE
    assert kstest((radius - 0.101) / 0.01, "norm").pvalue < RARE  # what leaving out 1 / r would look like


def test_slcp_points_have_the_stated_mean_and_covariance():
    theta, n = np.array([0.7, -2.9, -1.2, 0.9, 0.6]), 20_000
    points = slcp.simulate_rows(np.tile(theta, (n, 1)), np.random.default_rng(0)).reshape(-1, 2).astype(np.float64)
    s_1, s_2, rho = 1.2**2, 0.9**2, np.tanh(0.6)
    exact = np.array([[s_1**2, rho * s_1 * s_2], [rho * s_1 * s_2, s_2**2]])
    m = len(points)
    assert (np.abs(points.mean(0) - theta[:2]) < 4 * np.sqrt(np.diag(exact) / m)).all()
    spread = np.sqrt((exact**2 + np.outer(np.diag(exact), np.diag(exact))) / m)  # of a normal's covariance
    assert (np.abs(np.cov(points.T) - exact) < 4 * spread).all()
    # the four points are independent
    x = points.reshape(n, 8)
    assert np.abs(np.corrcoef(x.T)[0, 2::2]).max() < 4 / np.sqrt(n)


def test_slcp_signs_do_not_matter():
    theta = np.array([[0.7, -2.9, s * 1.2, t * 0.9, 0.6] for s in (-1, 1) for t in (-1, 1)])
    values = slcp.log_likelihood_rows(theta, np.arange(8.0) / 3)
    np.testing.assert_allclose(values, values[0])


def test_lotka_volterra_solves_the_equations():
    theta = lotka_volterra.TASK.prior.sample(12, seed=4).astype(np.float64)
    ours = lotka_volterra.log_populations(theta)
    times = 2.1 * np.arange(10)
    for row, (alpha, beta, gamma, delta) in zip(ours, theta, strict=True):

        def slope(_, state, alpha=alpha, beta=beta, gamma=gamma, delta=delta):
            u, v = np.exp(state)
            return [alpha - beta * v, delta * u - gamma]

        exact = solve_ivp(slope, (0, times[-1]), [np.log(30), 0.0], "DOP853", times, rtol=1e-10, atol=1e-10).y
        np.testing.assert_allclose(row, np.clip(exact.ravel(), np.log(1e-10), np.log(1e4)), atol=2e-3)


def test_lotka_volterra_noise_and_layout():
    n = 4000
    theta = np.tile([0.7, 0.1, 0.9, 0.12], (n, 1))
    x = lotka_volterra.simulate_rows(theta, np.random.default_rng(0)).astype(np.float64)
    noise = (np.log(x) - lotka_volterra.log_populations(theta[:1])) / 0.1
    assert np.abs(noise.mean(0)).max() < 4.5 / np.sqrt(n)
    assert np.abs(noise.std(0) - 1).max() < 4.5 / np.sqrt(2 * n)
    assert np.exp(np.log(x[:, 0]).mean()) == pytest.approx(30, rel=0.01)  # prey first, at t = 0
    assert np.exp(np.log(x[:, 10]).mean()) == pytest.approx(1, rel=0.01)  # then predators


def test_lotka_volterra_row_by_row_is_the_same_computation():
    for theta in lotka_volterra.TASK.prior.sample(5, seed=2):
        one = lotka_volterra.simulator(theta, np.random.default_rng(3))
        batched = lotka_volterra.simulate_rows(theta[None], np.random.default_rng(3))[0]
        np.testing.assert_allclose(one, batched, rtol=2e-3)


def test_lotka_volterra_failure_is_a_row_of_nan():
    hopeless = np.array([1e5, 1e-3, 1.0, 5.0], dtype=np.float32)
    assert np.isnan(lotka_volterra.simulator(hopeless, np.random.default_rng(0))).all()
    rows = lotka_volterra.simulate_rows(np.stack([hopeless, [0.7, 0.1, 0.9, 0.12]]), np.random.default_rng(0))
    assert np.isnan(rows[0]).all()
    assert np.isfinite(rows[1]).all()
