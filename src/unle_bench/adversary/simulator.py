"""One simulator of the adversary: a prior, a few lines that simulate, three observations, the exact posterior."""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from jaxtyping import Float

from unle.simulators import Batched, batched
from unle_bench.adversary.exact import AbstractSolution, Exact, Observed
from unle_bench.adversary.priors import AbstractPrior

OBSERVATIONS = ("typical", "tail", "edge")
SIMULATIONS = 2000
ROWS = 400  # of the prior predictive, among which observations are looked for
TAIL = 0.99  # of the prior predictive's distances from its middle
TRIES = 400  # simulations at the edge of the prior, until one is valid

Simulate = Callable[[Float[np.ndarray, "n dim"], np.random.Generator], Float[np.ndarray, "n dim_x"]]


@dataclass(frozen=True)
class Adversary:
    """A small simulator that attacks a default.

    Args:
        name: in lower case, for tables.
        attacks: what, in one sentence.
        prior: of theta.
        simulate: takes theta (n, dim) and a generator, returns x (n, dim_x); rows of NaN are failures.
        solution: how the exact posterior is computed.
        simulations: that a method is given.
        edge: theta at which the third observation is simulated; the prior's own edge if None.
        given: observations that are not simulated, by name.
        rows: of an observation; with more than one they are independent, at the same theta.
    """

    name: str
    attacks: str
    prior: AbstractPrior
    simulate: Simulate
    solution: AbstractSolution
    simulations: int = SIMULATIONS
    edge: tuple[float, ...] | None = None
    given: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    rows: int = 1

    @cached_property
    def observations(self) -> dict[str, Observed]:
        """Three data vectors, or tables of several rows, always the same.

        `typical` is the first valid row of the prior predictive; `tail` the one among four hundred whose distance from
        the middle exceeds that of 99 %, measured in the coordinate where it is largest; `edge` comes from a theta at
        the edge of the prior.
        """
        rng = np.random.default_rng([zlib.crc32(self.name.encode()), 1])
        theta = self.prior.draw(ROWS, rng)
        x = self.simulate(theta, rng)
        valid = np.isfinite(x).all(axis=1)
        theta, x = theta[valid], x[valid]
        far = _far(x)
        edge = self.prior.edge if self.edge is None else np.asarray(self.edge, float)
        at_edge = self._valid_rows(edge, rng)
        if self.rows == 1:
            found = {"typical": x[0], "tail": x[far], "edge": at_edge[0]}
        else:
            found = {"typical": self._valid_rows(theta[0], rng), "tail": self._valid_rows(theta[far], rng)}
            found = {name: x[: self.rows] for name, x in (found | {"edge": at_edge}).items()}
        return found | {name: np.asarray(x, float) for name, x in self.given.items()}

    def _valid_rows(self, theta: Float[np.ndarray, " dim"], rng: np.random.Generator) -> Float[np.ndarray, "n dim_x"]:
        x = self.simulate(np.tile(theta, (TRIES, 1)), rng)
        return x[np.isfinite(x).all(axis=1)]

    def exact(self, observation: str) -> Exact:
        """Return the exact posterior at one of the observations."""
        return self.solution.solve(self.prior, self.observations[observation])

    def simulator(self) -> Batched:
        """Return the simulator as methods take it."""
        return batched(self.simulate)


def observation_of(seed: int) -> str:
    """Return which observation a run with this seed is given: they take turns."""
    return OBSERVATIONS[seed % len(OBSERVATIONS)]


def _far(x: Float[np.ndarray, "n dim_x"]) -> int:
    distances = np.abs(x - np.median(x, axis=0))
    spread = np.median(distances, axis=0)
    spread = np.where(spread > 0, spread, np.maximum(distances.mean(axis=0), np.finfo(float).tiny))
    largest = np.max(distances / spread, axis=1)
    return int(np.argsort(largest)[int(TAIL * (len(x) - 1))])
