"""The priors of the adversary's simulators, in numpy: draws, densities, and coordinates in which grids are laid.

`unle.Prior` is what methods see.  References are computed with these instead: double precision, nothing to compile.
"""

import abc
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from unle.space import Prior

FAR = 8.0  # standard deviations: what lies beyond has no weight in double precision
OUTSKIRTS = 2.5  # standard deviations from the middle to what counts as the edge of a normal prior
FROM_THE_WALL = 0.01  # of the width of a box, to what counts as its edge


class AbstractPrior(abc.ABC):
    """A distribution of theta with coordinates z on which a grid may be laid: theta = to_theta(z), one by one."""

    @property
    @abc.abstractmethod
    def dim(self) -> int:
        """Number of parameters."""

    @property
    @abc.abstractmethod
    def low(self) -> Float[np.ndarray, " dim"]:
        """Lowest z of every coordinate."""

    @property
    @abc.abstractmethod
    def high(self) -> Float[np.ndarray, " dim"]:
        """Highest z of every coordinate."""

    @property
    @abc.abstractmethod
    def edge(self) -> Float[np.ndarray, " dim"]:
        """A theta at the prior's edge."""

    @abc.abstractmethod
    def draw(self, n: int, rng: np.random.Generator) -> Float[np.ndarray, "n dim"]:
        """Draw n theta."""

    @abc.abstractmethod
    def log_density(self, theta: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, " n"]:
        """Return log p(theta) up to a constant, -inf outside the support."""

    @abc.abstractmethod
    def for_methods(self) -> Prior:
        """Return the same prior as methods take it."""

    def to_theta(self, z: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """Return theta(z)."""
        return z

    def to_z(self, theta: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n dim"]:
        """Return z(theta)."""
        return theta

    def log_slope(self, z: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, " n"]:
        """Return log |det d theta / d z|."""
        return np.zeros(len(z))

    def log_density_of_z(self, z: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, " n"]:
        """Return the log density of z, up to a constant."""
        return self.log_density(self.to_theta(z)) + self.log_slope(z)


@dataclass(frozen=True)
class Box(AbstractPrior):
    """Uniform between walls."""

    lows: tuple[float, ...]
    highs: tuple[float, ...]

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return len(self.lows)

    @property
    def low(self) -> Float[np.ndarray, " dim"]:
        """The lower walls."""
        return np.asarray(self.lows, float)

    @property
    def high(self) -> Float[np.ndarray, " dim"]:
        """The upper walls."""
        return np.asarray(self.highs, float)

    @property
    def edge(self) -> Float[np.ndarray, " dim"]:
        """Close to the lower walls."""
        return self.low + FROM_THE_WALL * (self.high - self.low)

    def draw(self, n: int, rng: np.random.Generator) -> Float[np.ndarray, "n dim"]:
        """Draw n theta."""
        return rng.uniform(self.low, self.high, size=(n, self.dim))

    def log_density(self, theta: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, " n"]:
        """Return 0 inside and -inf outside."""
        hair = 1e-6 * (self.high - self.low)  # draws in single precision may lie on a wall
        inside = ((theta >= self.low - hair) & (theta <= self.high + hair)).all(axis=1)
        return np.where(inside, 0.0, -np.inf)

    def for_methods(self) -> Prior:
        """Return the same prior as methods take it."""
        return Prior.uniform(self.low, self.high)


@dataclass(frozen=True)
class Normals(AbstractPrior):
    """Normal with mean zero, any standard deviations, and one correlation between all pairs."""

    sds: tuple[float, ...]
    correlation: float = 0.0

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return len(self.sds)

    @property
    def low(self) -> Float[np.ndarray, " dim"]:
        """Far below the mean."""
        return -FAR * np.asarray(self.sds, float)

    @property
    def high(self) -> Float[np.ndarray, " dim"]:
        """Far above the mean."""
        return FAR * np.asarray(self.sds, float)

    @property
    def edge(self) -> Float[np.ndarray, " dim"]:
        """In the outskirts of one coordinate, and where that puts the others."""
        covariance = self.covariance
        return OUTSKIRTS * covariance[0] / np.sqrt(covariance[0, 0])

    @cached_property
    def covariance(self) -> Float[np.ndarray, "dim dim"]:
        """Of theta."""
        alike = np.full((self.dim, self.dim), self.correlation) + (1 - self.correlation) * np.eye(self.dim)
        return alike * np.outer(self.sds, self.sds)

    def draw(self, n: int, rng: np.random.Generator) -> Float[np.ndarray, "n dim"]:
        """Draw n theta."""
        return rng.normal(size=(n, self.dim)) @ np.linalg.cholesky(self.covariance).T

    def log_density(self, theta: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, " n"]:
        """Return the log density up to a constant."""
        return -0.5 * np.sum(theta * np.linalg.solve(self.covariance, theta.T).T, axis=1)

    def for_methods(self) -> Prior:
        """Return the same prior as methods take it."""
        if self.correlation == 0:
            return Prior.normal(np.zeros(self.dim), np.asarray(self.sds, float))
        from numpyro import distributions as dist

        return Prior(dist.MultivariateNormal(np.zeros(self.dim), covariance_matrix=self.covariance))


@dataclass(frozen=True)
class LogNormals(AbstractPrior):
    """Independent log-normals: z = log theta is normal."""

    means: tuple[float, ...]
    sds: tuple[float, ...]

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return len(self.sds)

    @property
    def low(self) -> Float[np.ndarray, " dim"]:
        """Far below the mean of log theta."""
        return np.asarray(self.means, float) - FAR * np.asarray(self.sds, float)

    @property
    def high(self) -> Float[np.ndarray, " dim"]:
        """Far above the mean of log theta."""
        return np.asarray(self.means, float) + FAR * np.asarray(self.sds, float)

    @property
    def edge(self) -> Float[np.ndarray, " dim"]:
        """In the outskirts."""
        return np.exp(np.asarray(self.means, float) + OUTSKIRTS * np.asarray(self.sds, float))

    def draw(self, n: int, rng: np.random.Generator) -> Float[np.ndarray, "n dim"]:
        """Draw n theta."""
        return np.exp(rng.normal(self.means, self.sds, size=(n, self.dim)))

    def log_density(self, theta: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, " n"]:
        """Return the log density of theta up to a constant, -inf where theta is not positive."""
        positive = (theta > 0).all(axis=1)
        z = np.log(np.where(theta > 0, theta, 1.0))
        normal = -0.5 * np.sum(((z - np.asarray(self.means)) / np.asarray(self.sds)) ** 2, axis=1)
        return np.where(positive, normal - z.sum(axis=1), -np.inf)

    def for_methods(self) -> Prior:
        """Return the same prior as methods take it."""
        return Prior.lognormal(np.asarray(self.means, float), np.asarray(self.sds, float))

    def to_theta(self, z: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """Return exp z."""
        return np.exp(z)

    def to_z(self, theta: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n dim"]:
        """Return log theta."""
        return np.log(theta)

    def log_slope(self, z: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, " n"]:
        """Return the sum of z: d exp(z) / dz = exp(z)."""
        return z.sum(axis=1)


@dataclass(frozen=True)
class LogUniforms(AbstractPrior):
    """Independent, each spread evenly over the decades between two positive numbers."""

    lows: tuple[float, ...]
    highs: tuple[float, ...]

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return len(self.lows)

    @property
    def low(self) -> Float[np.ndarray, " dim"]:
        """Logarithms of the lower walls."""
        return np.log(self.lows)

    @property
    def high(self) -> Float[np.ndarray, " dim"]:
        """Logarithms of the upper walls."""
        return np.log(self.highs)

    @property
    def edge(self) -> Float[np.ndarray, " dim"]:
        """Close to the lower walls."""
        return np.exp(self.low + FROM_THE_WALL * (self.high - self.low))

    def draw(self, n: int, rng: np.random.Generator) -> Float[np.ndarray, "n dim"]:
        """Draw n theta."""
        return np.exp(rng.uniform(self.low, self.high, size=(n, self.dim)))

    def log_density(self, theta: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, " n"]:
        """Return the log density of theta up to a constant, -inf outside."""
        z = np.log(np.where(theta > 0, theta, np.nan))
        hair = 1e-6 * (self.high - self.low)  # draws in single precision may lie on a wall
        inside = ((z >= self.low - hair) & (z <= self.high + hair)).all(axis=1)
        return np.where(inside, -z.sum(axis=1), -np.inf)

    def for_methods(self) -> Prior:
        """Return the same prior as methods take it."""
        from numpyro import distributions as dist

        return Prior(dist.LogUniform(np.asarray(self.lows, float), np.asarray(self.highs, float)))

    def to_theta(self, z: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """Return exp z."""
        return np.exp(z)

    def to_z(self, theta: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n dim"]:
        """Return log theta."""
        return np.log(theta)

    def log_slope(self, z: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, " n"]:
        """Return the sum of z: d exp(z) / dz = exp(z)."""
        return z.sum(axis=1)


def cube(dim: int, low: float = -3.0, high: float = 3.0) -> Box:
    """Return the box with equal sides that most simulators have as a prior."""
    return Box((low,) * dim, (high,) * dim)
