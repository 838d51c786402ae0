"""What is particular to autoregressive bases: quantiles far out, and a past that is the past."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from scipy.integrate import quad
from scipy.special import ndtri_exp
from scipy.stats import norm

from unle.models import Autoregressive, EnergyModel, Ensemble, Mlp, NoEnergy, OverCells, over_cells
from unle.models.autoregressive import Mixture, _log_density, _log_mass, _lower_quantile, _quantile, _to_normal
from unle.space import fit_theta_space, fit_x_space

DIM, POINTS = 2, 9


def base(*, sees_past, points=POINTS):
    net = Mlp(jr.key(0), *Autoregressive.sizes(DIM), width=8, depth=2, output_scale=0.5)
    rng = np.random.default_rng(0)
    linear = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((points,), (DIM, points)))
    return Autoregressive(*linear, jnp.linspace(0.5, 2.0, points), net, jnp.asarray(float(sees_past)))


def test_quantiles_are_those_of_scipy_and_have_their_slope():
    log_p = np.array([np.log(0.5), -0.7, -3.0, -50.0, -199.0, -201.0, -1e3, -1e5, -5e7])
    value, slope = jax.vmap(jax.value_and_grad(_lower_quantile))(jnp.asarray(log_p, jnp.float32))
    np.testing.assert_allclose(value, ndtri_exp(log_p), rtol=2e-5, atol=1e-6)
    step = 1e-6 * np.abs(log_p)
    np.testing.assert_allclose(slope, (ndtri_exp(log_p) - ndtri_exp(log_p - step)) / step, rtol=1e-3)


def test_a_value_changes_nothing_before_it():
    r = jr.normal(jr.key(1), (POINTS,))
    jacobian = eqx.filter_jit(lambda one, r: jax.jacfwd(lambda r: one.whiten(jnp.zeros(DIM), r))(r))
    for sees_past in (False, True):
        slopes = np.asarray(jacobian(base(sees_past=sees_past), r))
        assert (slopes[np.triu_indices(POINTS, 1)] == 0).all()
        assert (np.diagonal(slopes) > 0).all()
        assert (slopes[np.tril_indices(POINTS, -1)] != 0).any()


def test_the_network_sees_the_past_only_if_it_may():
    r = jr.normal(jr.key(1), (POINTS,))
    mixture = eqx.filter_jit(lambda one, r: one.mixture(jnp.zeros(DIM), r, jnp.asarray(5)))
    weights = [
        [mixture(base(sees_past=sees), past).log_weights for past in (r, r.at[3].add(1.0))] for sees in (False, True)
    ]
    np.testing.assert_array_equal(*weights[0])
    assert not np.allclose(*weights[1])


def test_far_data_have_a_finite_density_with_a_finite_slope():
    one = base(sees_past=True)
    far = jnp.zeros(POINTS).at[4].set(1e4)
    slope = eqx.filter_jit(jax.grad(lambda t: one.log_density(t, far) + jnp.sum(one.whiten(t, far))))
    assert np.isfinite(slope(jnp.zeros(DIM))).all()


def test_masses_of_intervals_are_those_of_scipy_and_have_finite_slopes():
    single = Mixture(jnp.zeros(1), jnp.zeros(1), jnp.zeros(1))
    widths, places = np.meshgrid([1e-4, 0.019, 0.021, 1.0, 30.0], [-15.0, -1.0, 0.0, 0.3, 8.0])
    lower = (places - widths / 2).ravel()
    upper = lower + widths.ravel()
    closed = lambda lower, upper, mixture: _log_mass(lower, upper, mixture, False, False)  # noqa: E731
    mass = jax.vmap(jax.value_and_grad(closed, argnums=1), (0, 0, None))
    values, slopes = mass(jnp.asarray(lower, jnp.float32), jnp.asarray(upper, jnp.float32), single)
    tail = np.where(lower > 0, -1, 1)  # by the nearer tail, where the difference of two numbers near one says nothing
    near, far = np.where(tail > 0, upper, -lower), np.where(tail > 0, lower, -upper)
    exact = norm.logcdf(near) + np.log(-np.expm1(norm.logcdf(far) - norm.logcdf(near)))
    # The ends are rounded to single precision, which matters for the narrowest of all, far out.
    rounding = np.abs(places.ravel()) * 2.0**-23 / widths.ravel()
    np.testing.assert_array_less(np.abs(values - exact), 1e-3 + 2 * rounding)
    assert np.isfinite(slopes).all()


def test_the_density_of_a_cell_is_its_mean():
    one, t, w = base(sees_past=True), jnp.asarray([0.3, -0.5]), jr.normal(jr.key(2), (POINTS,))
    density = eqx.filter_jit(lambda last: jnp.exp(one.log_density(t, w.at[-1].set(last))))
    low, high = float(w[-1]) - 1.6, float(w[-1]) + 1.6  # only the last coordinate has a cell: nothing depends on it
    exact = np.log(quad(lambda last: float(density(last)), low, high, epsrel=1e-4)[0] / (high - low))
    closed = jnp.zeros((2, POINTS))
    ends = jnp.concatenate([jnp.stack([w.at[-1].set(low), w, w.at[-1].set(high)]), closed])
    of_cell = eqx.filter_jit(lambda cell: one.log_cell_density(t, cell))
    np.testing.assert_allclose(of_cell(ends), exact, atol=1e-3)
    middle = np.log(density(w[-1]))
    assert abs(middle - exact) > 3e-3  # the middle is something else
    np.testing.assert_allclose(of_cell(jnp.concatenate([jnp.stack([w, w, w]), closed])), middle, rtol=1e-5)


def test_counts_have_the_probability_of_their_cells_however_many_they_are():
    """Means over points in a cell lose all accuracy with many coordinates; a product does not."""
    rng = np.random.default_rng(0)
    theta, noise, k = rng.uniform(-1, 1, size=(400, 1)), 0.4, 20
    x = np.round(theta + noise * rng.normal(size=(400, k)))
    theta_space, x_space = fit_theta_space(theta), fit_x_space(x)
    shift, scale = (np.asarray(part, float) for part in (x_space.standardiser.mean, x_space.standardiser.scale))
    middle, unit = (float(part[0]) for part in (theta_space.standardiser.mean, theta_space.standardiser.scale))
    net = Mlp(jr.key(0), *Autoregressive.sizes(1), width=4, depth=1, output_scale=0.0)
    linear = (middle - shift) / scale, (unit / scale)[None], noise / scale
    exact_base = Autoregressive(*(jnp.asarray(part, jnp.float32) for part in linear), net, jnp.zeros(()))
    # A network of zeros gives components a little apart: one alone, at the mean, makes the noise normal.
    alone = jnp.zeros(net.biases[-1].shape).at[0].set(60.0).at[4].set(0.2).at[8].set(0.2)
    exact_base = eqx.tree_at(lambda one: one.net.biases[-1], exact_base, alone)
    models = jax.tree.map(lambda leaf: leaf[None], EnergyModel(exact_base, NoEnergy()))
    likelihood = over_cells(Ensemble(theta_space, x_space, models, jnp.zeros(1)))
    assert isinstance(likelihood, OverCells)
    cell = likelihood.prepare(jnp.asarray(x[0]))
    thetas = np.array([-0.9, -0.2, 0.1, 0.8])
    log_likelihood = jax.jit(jax.vmap(lambda theta: likelihood.log_likelihood(theta, cell)))
    ours = log_likelihood(jnp.asarray(thetas, jnp.float32)[:, None])
    masses = [norm.cdf(x[0] + 0.5, theta, noise) - norm.cdf(x[0] - 0.5, theta, noise) for theta in thetas]
    exact = np.log(masses).sum(axis=1)
    np.testing.assert_allclose(ours - ours[0], exact - exact[0], rtol=1e-3, atol=1e-3)


def test_probabilities_of_all_cells_add_up_to_one_where_the_outermost_have_no_end():
    rng = np.random.default_rng(0)
    x = rng.binomial(4, rng.uniform(0, 1, 400))[:, None].astype(float)
    space = fit_x_space(x)
    one, t = base(sees_past=False, points=1), jnp.asarray([0.3, -0.5])
    cells = [space.cell(jnp.array([count])) for count in (0.0, 1.0, 2.0, 3.0, 4.0)]
    of_cell = eqx.filter_jit(lambda cell: one.log_cell_density(t, cell))
    masses = [np.exp(of_cell(cell)) * float(cell[2, 0] - cell[0, 0]) for cell in cells]
    np.testing.assert_allclose(np.sum(masses), 1.0, rtol=1e-4)
    closed = [np.exp(of_cell(cell.at[3:].set(0.0))) * float(cell[2, 0] - cell[0, 0]) for cell in cells]
    assert np.sum(closed) < 0.995  # what lies beyond the outermost cells belongs to them


def test_components_that_end_sharply_have_their_distribution_and_their_quantiles():
    """N(m, s^2) * U(-s h, s h), by numerical integration, from nearly normal to nearly uniform."""
    log_density, to_normal, quantile = (  # compiled once, not for each h
        jax.jit(jax.vmap(function, (0, None))) for function in (_log_density, _to_normal, _quantile)
    )
    for h in (0.005, 0.5, 3.0, 50.0):
        blurred = Mixture(jnp.zeros(1), jnp.asarray([0.3]), jnp.log(jnp.asarray([0.7])), jnp.asarray([h]))
        places = 0.3 + 0.7 * np.array([-1.0, -0.2, 0.0, 0.9, 1.02]) * (h + 2)
        density = lambda r, h=h: (norm.cdf((r - 0.3) / 0.7 + h) - norm.cdf((r - 0.3) / 0.7 - h)) / (2 * h * 0.7)  # noqa: E731
        values = log_density(jnp.asarray(places, jnp.float32), blurred)
        np.testing.assert_allclose(np.exp(values), density(places), rtol=2e-3, atol=1e-7)
        low = 0.3 - 0.7 * (h + 9)
        below = [quad(density, low, place, epsabs=1e-12, limit=200, points=[0.3 - 0.7 * h])[0] for place in places[:3]]
        v, log_slope = to_normal(jnp.asarray(places, jnp.float32), blurred)
        np.testing.assert_allclose(norm.cdf(v[:3]), below, rtol=5e-3)
        np.testing.assert_allclose(log_slope, values, rtol=1e-5)
        back = quantile(v, blurred)
        np.testing.assert_allclose(back, places, atol=2e-3 * (h + 1))


def test_far_data_have_a_finite_slope_where_components_end_sharply():
    mixture = Mixture(jnp.zeros(1), jnp.zeros(1), jnp.zeros(1), jnp.asarray([20.0]))
    both = jax.value_and_grad(lambda r: _log_density(r, mixture) + _to_normal(r, mixture)[0])
    values, slopes = jax.jit(jax.vmap(both))(jnp.array([-1e3, -40.0, -20.0, 20.0, 40.0, 1e3]))
    assert np.isfinite(values).all()
    assert np.isfinite(slopes).all()
