r"""Exact posteriors of the adversary's simulators: four ways to compute them, one record that comes out.

    ByFactors      p(theta | x) = prod_i p(theta_i | x): a fine grid for every coordinate
    OnPlane        two parameters: a grid that is laid again around what has weight
    Conjugate      normal prior, x = A theta + normal noise
    ByTempering    everything else: tempered particles with many random-walk moves under the exact likelihood

Each knows log p(x | theta) too, in which the probability of a valid simulation counts as part: for a simulator that may
fail, the posterior is p(theta) P(valid | theta) p(x | theta, valid).
"""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float

from unle_bench.adversary.priors import AbstractPrior, Normals

Thetas = Float[np.ndarray, "n dim"]
Data = Float[np.ndarray, " dim_x"]
Observed = Data | Float[np.ndarray, "rows dim_x"]
PerRow = Float[np.ndarray, " n"]
Draw = Callable[[int, np.random.Generator], Thetas]
LogFactor = Callable[[PerRow, int, Data], PerRow]
LogLikelihood = Callable[[Thetas, Data], PerRow]

REGION = 0.999  # share of the exact posterior inside the region that draws should not leave
SLACK = 1e-3  # of a log density: where the posterior is flat, rounding must not decide
COUNTED = 40_000  # exact draws that standard deviations and the region are taken from
NEGLIGIBLE = 25.0  # log density below the highest at which a cell has no weight
LINE_CELLS, PLANE_CELLS = (2001, 2001, 8001), (301, 201, 401)  # of a side: two looks, then the grid itself
CHUNK = 50_000  # rows for which a likelihood is computed at a time
PARTICLES, MOVES, LAST_MOVES, SMALLEST_ESS = 10_000, 8, 60, 0.5


@dataclass(frozen=True)
class Exact:
    """An exact posterior at one observation.

    Args:
        draw: makes n independent draws, up to the width of a grid's cell.
        log_density: of rows of theta, up to a constant.
    """

    draw: Draw
    log_density: Callable[[Thetas], PerRow]

    @cached_property
    def _counted(self) -> Thetas:
        return self.draws(COUNTED, seed=0)

    @cached_property
    def mean(self) -> Float[np.ndarray, " dim"]:
        """Of every coordinate."""
        return self._counted.mean(axis=0)

    @cached_property
    def sd(self) -> Float[np.ndarray, " dim"]:
        """Standard deviation of every coordinate."""
        return self._counted.std(axis=0)

    @cached_property
    def lowest(self) -> float:
        """The log density that 99.9 % of the exact draws exceed: the border of the region of highest density."""
        return float(np.quantile(self.log_density(self._counted), 1 - REGION, method="lower"))

    def draws(self, n: int, *, seed: int) -> Thetas:
        """Return n draws; those that a cell of a grid puts beyond a hard edge are made again."""
        rng = np.random.default_rng(seed)
        kept = np.zeros((0, 0))
        while len(kept) < n:
            more = self.draw(n, rng)
            more = more[np.isfinite(self.log_density(more))]
            kept = np.concatenate([kept, more]) if kept.size else more
        return kept[:n]

    def outside(self, theta: Thetas) -> Bool[np.ndarray, " n"]:
        """Return which rows lie beyond the exact 99.9 % region of highest density."""
        return ~(self.log_density(np.asarray(theta, float)) >= self.lowest - SLACK)


class AbstractSolution(abc.ABC):
    """How the exact posterior of a simulator is computed."""

    @abc.abstractmethod
    def log_likelihood(self, theta: Thetas, x: Data) -> PerRow:
        """Return log p(x, valid | theta) for rows of theta, up to a constant in theta."""

    @abc.abstractmethod
    def draw_from(self, prior: AbstractPrior, x: Observed) -> Draw:
        """Return a function that draws from the posterior."""

    def solve(self, prior: AbstractPrior, x: Observed) -> Exact:
        """Return the posterior at x."""

        def log_density(theta: Thetas) -> PerRow:
            log_prior = prior.log_density(theta)
            inside = np.isfinite(log_prior)
            found = np.full(len(theta), -np.inf)
            if inside.any():
                found[inside] = log_prior[inside] + self.log_likelihood_of_rows(theta[inside], x)
            return found

        return Exact(self.draw_from(prior, x), log_density)

    def log_likelihood_of_rows(self, theta: Thetas, x: Observed) -> PerRow:
        """Return log p(x | theta), summed over the rows of an observation that has several; theta in chunks."""
        chunks = [theta[k : k + CHUNK] for k in range(0, len(theta), CHUNK)]
        return np.concatenate([sum(self.log_likelihood(some, row) for row in np.atleast_2d(x)) for some in chunks])

    def _log_density_of_z(self, prior: AbstractPrior, z: Thetas, x: Observed) -> PerRow:
        return prior.log_density_of_z(z) + self.log_likelihood_of_rows(prior.to_theta(z), x)


@dataclass(frozen=True)
class ByFactors(AbstractSolution):
    """Parameters that are independent a posteriori.

    Args:
        log_factor: takes values of theta_i, the number i, and x; returns the part of log p(x | theta) that has theta_i.
    """

    log_factor: LogFactor

    def log_likelihood(self, theta: Thetas, x: Data) -> PerRow:
        """Return the sum of the factors."""
        with np.errstate(divide="ignore"):
            return np.sum([self.log_factor(theta[:, i], i, x) for i in range(theta.shape[1])], axis=0)

    def draw_from(self, prior: AbstractPrior, x: Observed) -> Draw:
        """Lay a grid for every coordinate; the prior must have independent ones."""
        grids = [self._grid(prior, i, x) for i in range(prior.dim)]

        def draw(n: int, rng: np.random.Generator) -> Thetas:
            return np.stack([_draw_cells(rng, n, *grid, prior) for grid in grids], axis=1)

        return draw

    def _grid(
        self, prior: AbstractPrior, i: int, x: Data
    ) -> tuple[Float[np.ndarray, " edges"], Float[np.ndarray, " cells"]]:
        low, high = float(prior.low[i]), float(prior.high[i])
        middle = (prior.low + prior.high) / 2
        for cells in LINE_CELLS:
            edges = np.linspace(low, high, cells + 1)
            z = np.tile(middle, (cells, 1))
            z[:, i] = (edges[1:] + edges[:-1]) / 2
            with np.errstate(divide="ignore"):
                log_p = prior.log_density_of_z(z) + self.log_factor(prior.to_theta(z)[:, i], i, x)
            (kept,) = np.nonzero(log_p > log_p.max() - NEGLIGIBLE)
            low, high = edges[max(kept[0] - 1, 0)], edges[min(kept[-1] + 2, cells)]
        return edges, _probabilities(log_p)


def _draw_cells(
    rng: np.random.Generator,
    n: int,
    edges: Float[np.ndarray, " edges"],
    probabilities: Float[np.ndarray, " cells"],
    prior: AbstractPrior,
) -> PerRow:
    cells = rng.choice(len(probabilities), size=n, p=probabilities)
    return prior.to_theta(rng.uniform(edges[cells], edges[cells + 1]))


def _probabilities(log_p: Float[np.ndarray, " cells"]) -> Float[np.ndarray, " cells"]:
    weights = np.exp(log_p - log_p.max())
    return weights / weights.sum()


@dataclass(frozen=True)
class _ByLikelihood(AbstractSolution):
    """What solutions from a function for the whole likelihood have in common."""

    function: LogLikelihood

    def log_likelihood(self, theta: Thetas, x: Data) -> PerRow:
        """Return log p(x | theta)."""
        with np.errstate(divide="ignore"):
            return self.function(theta, x)


@dataclass(frozen=True)
class OnPlane(_ByLikelihood):
    """Two parameters.

    Args:
        function: takes theta and x, returns log p(x | theta).
    """

    def draw_from(self, prior: AbstractPrior, x: Observed) -> Draw:
        """Lay a grid over the plane."""
        assert prior.dim == 2
        low, high = prior.low, prior.high
        for cells in PLANE_CELLS:
            edges = np.linspace(low, high, cells + 1)  # (cells + 1, 2)
            middles = (edges[1:] + edges[:-1]) / 2
            z = np.stack(np.meshgrid(*middles.T, indexing="ij"), axis=-1).reshape(-1, 2)
            log_p = self._log_density_of_z(prior, z, x)
            heavy = z[log_p > log_p.max() - NEGLIGIBLE]
            side = (high - low) / cells
            low = np.maximum(low, heavy.min(axis=0) - 1.5 * side)
            high = np.minimum(high, heavy.max(axis=0) + 1.5 * side)
        probabilities = _probabilities(log_p)

        def draw(n: int, rng: np.random.Generator) -> Thetas:
            chosen = rng.choice(len(probabilities), size=n, p=probabilities)
            return prior.to_theta(z[chosen] + side * rng.uniform(-0.5, 0.5, size=(n, 2)))

        return draw


@dataclass(frozen=True)
class Conjugate(AbstractSolution):
    """Normal prior and x = A theta + sd N.

    Args:
        matrix: A, one row for each entry of x.
        sd: of the noise.
    """

    matrix: Float[np.ndarray, "dim_x dim"]
    sd: float

    def log_likelihood(self, theta: Thetas, x: Data) -> PerRow:
        """Return the normal log density."""
        return -0.5 * np.sum((x - theta @ self.matrix.T) ** 2, axis=1) / self.sd**2

    def draw_from(self, prior: AbstractPrior, x: Observed) -> Draw:
        """Return draws of the normal posterior."""
        assert isinstance(prior, Normals)
        precision = np.linalg.inv(prior.covariance) + self.matrix.T @ self.matrix / self.sd**2
        covariance = np.linalg.inv(precision)
        mean, factor = covariance @ (self.matrix.T @ x) / self.sd**2, np.linalg.cholesky(covariance)
        return lambda n, rng: mean + rng.normal(size=(n, prior.dim)) @ factor.T


@dataclass(frozen=True)
class ByTempering(_ByLikelihood):
    """Any number of parameters: particles from the prior to the posterior in steps.

    Args:
        function: takes theta and x, returns log p(x | theta).
    """

    def draw_from(self, prior: AbstractPrior, x: Observed) -> Draw:
        """Move particles to the posterior; draws are chosen among them, with repeats only if more are asked for."""
        particles = prior.to_theta(self._particles(prior, x, np.random.default_rng(0)))

        def draw(n: int, rng: np.random.Generator) -> Thetas:
            return particles[rng.choice(len(particles), size=n, replace=n > len(particles))]

        return draw

    def _particles(self, prior: AbstractPrior, x: Observed, rng: np.random.Generator) -> Thetas:
        z = prior.to_z(prior.draw(PARTICLES, rng))
        log_likelihood, temperature = self.log_likelihood_of_rows(prior.to_theta(z), x), 0.0
        while temperature < 1:
            following = _next_temperature(log_likelihood, temperature)
            weights = _probabilities((following - temperature) * log_likelihood)
            chosen = rng.choice(PARTICLES, size=PARTICLES, p=weights)
            z, log_likelihood, temperature = z[chosen], log_likelihood[chosen], following
            moves = LAST_MOVES if temperature == 1 else MOVES
            z, log_likelihood = self._moved(prior, x, z, log_likelihood, temperature, moves, rng)
        return z

    def _moved(
        self,
        prior: AbstractPrior,
        x: Observed,
        z: Thetas,
        log_likelihood: PerRow,
        temperature: float,
        moves: int,
        rng: np.random.Generator,
    ) -> tuple[Thetas, PerRow]:
        """Propose differences of other particles, as in differential evolution: steps that know the modes' shapes."""
        log_prior = prior.log_density_of_z(z)
        n, dim = z.shape
        for move in range(moves):
            # every other step leads as far as from one mode to another
            scale = 1.0 if move % 2 else 2.38 / np.sqrt(2 * dim) * rng.choice([0.3, 1.0])
            others = (np.arange(n) + rng.integers(1, n)) % n, (np.arange(n) + rng.integers(1, n)) % n
            jitter = 0.02 * z.std(axis=0) * rng.normal(size=z.shape)
            proposal = z + scale * (z[others[0]] - z[others[1]]) + jitter
            proposed_prior = prior.log_density_of_z(proposal)
            inside = np.isfinite(proposed_prior)
            proposed = np.full(n, -np.inf)
            if inside.any():
                proposed[inside] = self.log_likelihood_of_rows(prior.to_theta(proposal[inside]), x)
            with np.errstate(invalid="ignore"):
                ratio = proposed_prior - log_prior + temperature * (proposed - log_likelihood)
            accepted = np.log(rng.uniform(size=n)) < ratio
            z = np.where(accepted[:, None], proposal, z)
            log_likelihood = np.where(accepted, proposed, log_likelihood)
            log_prior = np.where(accepted, proposed_prior, log_prior)
        return z, log_likelihood


def _next_temperature(log_likelihood: PerRow, temperature: float) -> float:
    """Return the highest temperature at which half of the particles still count."""

    def share(following: float) -> float:
        weights = _probabilities((following - temperature) * log_likelihood)
        return float(1 / np.sum(weights**2) / len(weights))

    if share(1.0) >= SMALLEST_ESS:
        return 1.0
    low, high = temperature, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if share(middle) >= SMALLEST_ESS else (low, middle)
    return high
