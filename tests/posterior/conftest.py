"""A linear Gaussian model in raw units, wrapped as a fitted likelihood, whose posterior is known exactly."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

from unle.models import ConditionalGaussian, EnergyLikelihood, EnergyModel, NoCorrection, NoEnergy
from unle.space import Prior, fit_theta_space, fit_x_space


class LinearGaussian(NamedTuple):
    """x = matrix theta + offset + root noise, theta ~ N(mean, diag(sd^2))."""

    matrix: np.ndarray
    offset: np.ndarray
    root: np.ndarray
    mean: np.ndarray
    sd: np.ndarray

    @property
    def noise(self):
        return self.root @ self.root.T

    def simulate(self, theta, rng):
        return theta @ self.matrix.T + self.offset + rng.normal(size=(len(theta), len(self.offset))) @ self.root.T

    def posterior(self, rows):
        """Return mean and covariance of theta given i.i.d. rows."""
        weighted = self.matrix.T @ np.linalg.inv(self.noise)
        covariance = np.linalg.inv(np.diag(self.sd**-2) + len(rows) * weighted @ self.matrix)
        return covariance @ (self.mean / self.sd**2 + weighted @ (rows - self.offset).sum(0)), covariance

    def fitted(self, rng):
        """Return prior and likelihood as a perfect fit would have them, and the scales of x."""
        prior = Prior.normal(self.mean, self.sd)
        theta = self.mean + self.sd * rng.normal(size=(2000, len(self.mean)))
        theta_space, x_space = fit_theta_space(theta), fit_x_space(self.simulate(theta, rng))
        (t_mean, t_sd), (x_mean, x_sd) = (
            (np.asarray(space.standardiser.mean, float), np.asarray(space.standardiser.scale, float))
            for space in (theta_space, x_space)
        )
        assert {*theta_space.standardiser.marginals.names(), *x_space.standardiser.marginals.names()} == {"identity"}
        base = ConditionalGaussian(
            jnp.asarray((self.offset + self.matrix @ t_mean - x_mean) / x_sd, jnp.float32),
            jnp.asarray(t_sd[:, None] * self.matrix.T / x_sd, jnp.float32),
            jnp.asarray(np.linalg.inv(self.root / x_sd[:, None]), jnp.float32),
            NoCorrection(),
        )
        model = EnergyModel(base, NoEnergy())
        return prior, EnergyLikelihood(theta_space, x_space, model, jnp.zeros(())), x_sd


@pytest.fixture(scope="session")
def linear_gaussian():
    return LinearGaussian(
        matrix=np.array([[3.0, 0.0], [20.0, -50.0]]),
        offset=np.array([100.0, 1.0]),
        root=np.array([[2.0, 0.0], [-3.0, 8.0]]),
        mean=np.array([1.0, -0.2]),
        sd=np.array([1.0, 0.3]),
    )
