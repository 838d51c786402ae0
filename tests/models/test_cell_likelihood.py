"""The likelihood of a cell: the mean of a density over it, and of nothing but cells."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import norm

from unle.models import ConditionalGaussian, EnergyModel, Ensemble, NoCorrection, NoEnergy, OverCells, over_cells
from unle.space import fit_theta_space, fit_x_space

RNG = np.random.default_rng(0)
THETA = RNG.uniform(-1, 1, size=(500, 1))
NOISE = 0.4


def ensemble(x):
    """Return the model x ~ N(theta, NOISE^2) in the coordinates of some data."""
    theta_space, x_space = fit_theta_space(THETA), fit_x_space(x)
    shift, scale = (np.asarray(part) for part in (x_space.standardiser.mean, x_space.standardiser.scale))
    middle, unit = (float(part[0]) for part in (theta_space.standardiser.mean, theta_space.standardiser.scale))
    parts = [(middle - shift[0]) / scale[0]], [[unit / scale[0]]], [[scale[0] / NOISE]]
    linear = (jnp.asarray(part, jnp.float32)[None] for part in parts)
    base = eqx.filter_vmap(lambda *linear: ConditionalGaussian(*linear, NoCorrection()))(*linear)
    return Ensemble(theta_space, x_space, EnergyModel(base, NoEnergy()), jnp.zeros(1))


def test_the_likelihood_of_a_count_is_that_of_its_cell():
    x = np.round(THETA + NOISE * RNG.normal(size=THETA.shape))
    model = ensemble(x)
    likelihood = over_cells(model)
    assert isinstance(likelihood, OverCells)
    for value in (0.0, 1.0):
        w = likelihood.prepare(jnp.asarray([value]))
        ours = np.array([likelihood.log_likelihood(jnp.asarray([theta]), w) for theta in (-0.7, 0.1, 0.9)])
        exact = np.log([np.diff(norm.cdf([value - 0.5, value + 0.5], theta, NOISE))[0] for theta in (-0.7, 0.1, 0.9)])
        np.testing.assert_allclose(ours - ours[0], exact - exact[0], atol=0.1)
        middle = np.array([norm.logpdf(value, theta, NOISE) for theta in (-0.7, 0.1, 0.9)])
        assert np.abs(middle - middle[0] - exact + exact[0]).max() > 0.3  # the density at its middle is something else
        np.testing.assert_allclose(likelihood.coordinates(jnp.asarray([value])), model.prepare(jnp.asarray([value])))


def test_the_likelihood_of_a_count_on_a_scale_that_is_not_linear():
    """Points must be even in w: even in x they would count too much where the scale is stretched."""
    x = np.round(np.exp(0.5 + 1.8 * np.random.default_rng(1).normal(size=THETA.shape)))
    model = ensemble(x)
    assert model.x_space.standardiser.marginals.names() == ("Yeo-Johnson",)
    likelihood, thetas = over_cells(model), jnp.asarray([-0.9, -0.7, 0.1, 0.9])[:, None]
    for value in (0.0, 1.0):
        count, nodes = jnp.asarray([value]), np.linspace(0, 1, 401)[:, None]
        w = jax.vmap(model.x_space.forward, (None, 0))(count, jnp.asarray(nodes))
        density = np.exp(jax.vmap(jax.vmap(model.log_likelihood, (None, 0)), (0, None))(thetas, w))
        exact = np.log(np.trapezoid(density, np.asarray(w[:, 0], float)))
        cell = likelihood.prepare(count)
        ours = np.array([likelihood.log_likelihood(theta, cell) for theta in thetas])
        np.testing.assert_allclose(ours - ours[0], exact - exact[0], atol=0.04)


def test_data_without_cells_keep_their_likelihood():
    model = ensemble(THETA + NOISE * RNG.normal(size=THETA.shape))
    assert over_cells(model) is model
