r"""Models whose normaliser is known in closed form, for tests of everything that claims to do without it.

    f(w | theta) = N(w; 0, 1) exp(theta_1 w - exp(theta_2) w^2 / 2 - c(theta)),
    Z(theta) = (1 + a)^(-1/2) exp(theta_1^2 / (2 (1 + a)) - c(theta)),   a = exp(theta_2),

with an arbitrary c(theta) that must not matter.  Given theta, w is Gaussian.
"""

from types import SimpleNamespace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

from unle.models import AbstractEnergy, ConditionalLikelihood, EnergyModel, FixedMeasure
from unle.space import Prior, fit_theta_space, fit_x_space

OBSERVED = np.array([[0.8], [-0.2], [1.4]])
PRIOR = Prior.normal([0.0, 0.0], [1.0, 1.0])


class Quadratic(AbstractEnergy):
    """E = a r^2 / 2 - t_1 r + c(t)."""

    def __call__(self, t, r):
        return 0.5 * jnp.exp(t[1]) * r[0] ** 2 - t[0] * r[0] + nuisance(t)


def nuisance(t):
    return 3 * jnp.sin(t[0]) + 2 * t[1]


def log_z(theta):
    """Log Z of one theta."""
    a = jnp.exp(theta[1])
    return -0.5 * jnp.log1p(a) + theta[0] ** 2 / (2 * (1 + a)) - nuisance(theta)


def likelihood():
    """Return the model with standardisations that do nothing."""
    corners = np.array([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])
    base = FixedMeasure(jnp.zeros(1), jnp.ones(()))
    spaces = fit_theta_space(corners), fit_x_space(np.array([[-1.0], [1.0]]))
    return ConditionalLikelihood(*spaces, EnergyModel(base, Quadratic()))


class Exact(NamedTuple):
    """The posterior on a grid."""

    theta: np.ndarray
    weights: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray

    def draws(self, rng, n):
        """Draw from the grid, blurred by its spacing."""
        return self.theta[rng.choice(len(self.weights), n, p=self.weights)] + 0.02 * rng.uniform(-0.5, 0.5, (n, 2))

    def scores(self, values):
        """Return standardised draws, squares and product, minus what they should be on average."""
        z = (np.asarray(values, float) - self.mean) @ np.linalg.inv(np.linalg.cholesky(self.covariance)).T
        return np.concatenate([z, z**2 - 1, z[..., :1] * z[..., 1:]], axis=-1)


def posterior(rows):
    """Return the exact posterior by quadrature."""
    axis = jnp.linspace(-6, 6, 601)
    theta = jnp.stack(jnp.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    model = likelihood()

    def log_posterior(theta):
        data = jnp.asarray(rows, jnp.float32)
        f = jnp.sum(jax.vmap(lambda x: model.log_unnormalised(theta, model.prepare(x)))(data))
        return jnp.sum(norm.logpdf(theta)) + f - len(rows) * log_z(theta)

    heights = np.asarray(jax.jit(jax.vmap(log_posterior))(theta), float)
    weights = np.exp(heights - heights.max())
    weights /= weights.sum()
    points = np.asarray(theta, float)
    mean = weights @ points
    return Exact(points, weights, mean, (weights[:, None] * (points - mean)).T @ (points - mean))


@pytest.fixture(scope="session")
def known():
    """The model, its log Z, and its exact posterior given three rows."""
    return SimpleNamespace(
        likelihood=likelihood(), log_z=log_z, prior=PRIOR, observed=OBSERVED, exact=posterior(OBSERVED)
    )
