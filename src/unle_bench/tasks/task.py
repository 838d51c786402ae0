"""A benchmark task: a prior, a simulator, ten observations, and exact draws of the posterior.

What makes these tasks useful is the last part.  Each has a likelihood that is known in closed form (or up to
an ordinary differential equation), so that exact posterior draws can be made for *any* observation and a
method can be scored without trusting another approximation.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from unle.errors import InputError
from unle.simulators import JaxSimulator, jax_simulator
from unle.space import Prior
from unle_bench.tasks import official

Simulator = Callable[[np.ndarray, np.random.Generator], np.ndarray]
# Seed of the observations that a task makes for itself where the official ones are not installed.
OWN_SEED = 20_230


@dataclass(frozen=True)
class OneRow:
    """A simulator of one row, from one of many rows."""

    simulate_rows: Simulator

    def __call__(self, theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Simulate one x for one theta."""
        return self.simulate_rows(np.asarray(theta)[None], rng)[0]


@dataclass(frozen=True)
class Task:
    """One benchmark problem.

    To add one, write a module with these functions and one entry in `unle_bench`.

    Args:
        name: the benchmark's name for it.
        description: one sentence, for tables and help texts.
        prior: distribution of the d parameters theta.
        names_x: one name per coordinate of x.
        simulate_rows: maps thetas (n, d) and a generator to one x for each, (n, dim_x).
        simulator: the same law for one theta (d,); importable, for worker processes. By default a single row.
        log_likelihood_rows: log p(x | theta), for rows of theta (n, d) and one x, as (n,); None if it is not known.
        draw_posterior: n exact draws of p(theta | x_o), from x_o, n and a generator, as (n, d); None likewise.
        own: observations to use instead of simulated ones, {i: (theta, x)}; for tasks that fix their own. Theta is None
            for an observation of the world.
        observations: how many there are.
        on_device: the same law as a JAX function of a key and one theta, for accelerators; None if there is none.
    """

    name: str
    description: str
    prior: Prior
    names_x: tuple[str, ...]
    simulate_rows: Simulator
    simulator: Simulator = None  # pyright: ignore[reportAssignmentType]
    log_likelihood_rows: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None
    draw_posterior: Callable[[np.ndarray, int, np.random.Generator], np.ndarray] | None = None
    own: dict[int, tuple[tuple[float, ...] | None, tuple[float, ...]]] = field(default_factory=dict)
    observations: int = official.N_OBSERVATIONS
    on_device: Callable[[Any, Any], Any] | None = None

    def __post_init__(self):
        if self.simulator is None:
            object.__setattr__(self, "simulator", OneRow(self.simulate_rows))

    @property
    def dim_theta(self) -> int:
        """Number of parameters."""
        return self.prior.dim

    @property
    def dim_x(self) -> int:
        """Length of a data vector."""
        return len(self.names_x)

    @property
    def observation_source(self) -> str:
        """Where observations come from: "official" (the benchmark's files), "own" (fixed seeds) or "recorded"."""
        if any(theta is None for theta, _ in self.own.values()):
            return "recorded"
        return "own" if official.official_folder(self.name) is None else "official"

    @property
    def has_reference(self) -> bool:
        """Whether draws can be scored: the exact posterior can be drawn from, or reference draws are installed."""
        return self.draw_posterior is not None or official.official_folder(self.name) is not None

    @property
    def simulator_here(self) -> Simulator | JaxSimulator:
        """The simulator for this process: in JAX if it is written in it and an accelerator is present."""
        if self.on_device is None or jax.default_backend() == "cpu":
            return self.simulator
        return self.on_device if isinstance(self.on_device, JaxSimulator) else jax_simulator(self.on_device)

    def simulate(self, theta: ArrayLike, seed: int) -> Float[np.ndarray, "n dim_x"]:
        """Simulate one x for every row of theta (n, d); deterministic given the seed."""
        rows = np.asarray(theta)
        if rows.ndim != 2 or rows.shape[1] != self.dim_theta:
            raise InputError(f"expected theta of shape (n, {self.dim_theta}); got {rows.shape}; try theta[None].")
        return self.simulate_rows(rows, np.random.default_rng(seed))

    def log_likelihood(self, theta: ArrayLike, x: ArrayLike) -> Float[np.ndarray, " n"]:
        """Return the exact log p(x | theta) for every row of theta (n, d) and one x (dim_x,)."""
        rows = np.asarray(theta, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != self.dim_theta:
            raise InputError(f"expected theta of shape (n, {self.dim_theta}); got {rows.shape}; try theta[None].")
        if self.log_likelihood_rows is None:
            raise InputError(self._unknown("likelihood"))
        return self.log_likelihood_rows(rows, self._checked(x))

    def observation(self, i: int) -> Float[np.ndarray, " dim_x"]:
        """Return the i-th observation, counted from 1; most tasks have ten (see `observation_source`)."""
        folder = self._folder(i)
        return self._own(i)[1] if folder is None else official.official_observation(folder, i, self.name)

    def true_parameters(self, i: int) -> Float[np.ndarray, " dim"]:
        """Return the parameters that generated the i-th observation."""
        folder = self._folder(i)
        if i in self.own and self.own[i][0] is None:
            raise InputError(f"observation {i} of {self.name} was recorded, not simulated; its parameters are unknown.")
        return self._own(i)[0] if folder is None else official.official_parameters(folder, i)

    def official_reference(self, i: int) -> Float[np.ndarray, "n dim"] | None:
        """Return the benchmark's 10 000 reference draws of the i-th posterior; None where not installed."""
        folder = self._folder(i)
        return None if folder is None else official.official_reference(folder, i)

    def reference(self, x_o: ArrayLike, n: int, *, seed: int = 0) -> Float[np.ndarray, "n dim"]:
        """Draw n times from the exact posterior p(theta | x_o), for any x_o (dim_x,).

        Example:
            >>> from unle_bench import task
            >>> moons = task("two_moons")
            >>> moons.reference(moons.observation(1), 1000, seed=0).shape
            (1000, 2)
        """
        if n < 1:
            raise InputError(f"expected a positive number of draws; got {n}; try 10_000.")
        if self.draw_posterior is None:
            raise InputError(self._unknown("posterior"))
        draws = self.draw_posterior(self._checked(x_o), n, np.random.default_rng(seed))
        return draws.astype(np.float32)

    def _unknown(self, what: str) -> str:
        return (
            f"the exact {what} of {self.name} is not known: its likelihood has no formula; "
            "try the checks that need none, such as `unle check`."
        )

    def _checked(self, x: ArrayLike) -> Float[np.ndarray, " dim_x"]:
        vector = np.asarray(x, dtype=np.float64)
        if vector.shape != (self.dim_x,):
            raise InputError(f"expected one x of shape ({self.dim_x},); got {vector.shape}; try a single row.")
        if not np.isfinite(vector).all():
            raise InputError(f"expected finite data; got {vector}; try another observation.")
        return vector

    def _folder(self, i: int):
        if not 1 <= i <= self.observations:
            numbers = "1" if self.observations == 1 else f"from 1 to {self.observations}"
            raise InputError(f"expected an observation number {numbers}; got {i}.")
        return official.official_folder(self.name)

    def _own(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        if i in self.own:
            theta, x = self.own[i]
            theta = np.full(self.dim_theta, np.nan) if theta is None else theta
            return np.asarray(theta, dtype=np.float32), np.asarray(x, dtype=np.float32)
        # In double precision the prior would draw other bits.
        with jax.enable_x64(False):  # noqa: FBT003  # the argument has no public name
            theta = self.prior.sample(1, seed=OWN_SEED + i)[0]
        return theta, self.simulator(theta, np.random.default_rng([OWN_SEED, i]))
