"""The pyloric network as a simulator of summary statistics: what `unle.simulate` calls.

Three choices of statistics: the eight free ones (default), the fifteen of the papers, or eighteen, with plateaus.

Example:
    >>> from unle_bench.pyloric.simulators import OnCpu
    >>> OnCpu().names[:2]
    ('cycle_period', 'burst_duration PM')
    >>> len(OnCpu("paper").names)
    15
"""

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Float

from unle.errors import InputError
from unle_bench.pyloric.bursts import Bursts
from unle_bench.pyloric.statistics import (
    FREE,
    FREE_NAMES,
    OBSERVED,
    PAPER_NAMES,
    PLATEAU_NAMES,
    explain,
    fifteen,
    free_statistics,
    plateau_statistics,
)

KINDS = {"free": FREE_NAMES, "paper": PAPER_NAMES, "plateaus": (*PAPER_NAMES, *PLATEAU_NAMES)}


def names_of(kind: str) -> tuple[str, ...]:
    """Return the names of the statistics of a kind."""
    if kind not in KINDS:
        raise InputError(f"expected statistics of a kind among {', '.join(KINDS)}; got {kind!r}.")
    return KINDS[kind]


def observed(kind: str = "free") -> Float[np.ndarray, " dim_x"]:
    """Return the experimental observation x_o."""
    return OBSERVED[list(FREE)] if kind == "free" else OBSERVED[: len(names_of(kind))]


def statistics(bursts: Bursts, kind: str = "free", xp: ModuleType = np) -> Any:
    """Return the statistics of one simulation; NaN where undefined.

    Args:
        bursts: of the simulation.
        kind: "free", "paper" or "plateaus".
        xp: `numpy` or `jax.numpy`.
    """
    names_of(kind)
    free = free_statistics(bursts, xp)
    if kind == "free":
        return free
    paper = fifteen(free, xp)
    return paper if kind == "paper" else xp.concatenate([paper, plateau_statistics(bursts, xp)])


@dataclass(frozen=True)
class OnCpu:
    """A simulator for CPU cores, one simulation at a time; compiled by Numba.

    Attributes:
        kind: which statistics: "free", "paper" or "plateaus".
    """

    kind: str = "free"

    def __post_init__(self) -> None:
        names_of(self.kind)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the statistics."""
        return KINDS[self.kind]

    def __call__(self, theta: Float[np.ndarray, " dim"], rng: np.random.Generator) -> Float[np.ndarray, " dim_x"]:
        """Simulate eleven seconds and return their statistics."""
        from unle_bench.pyloric.on_cpu import run

        return statistics(run(theta, rng, with_plateaus=self.kind == "plateaus").bursts, self.kind)

    def explain(self, x: Float[np.ndarray, " dim_x"]) -> str:
        """Return why statistics are not valid."""
        return explain(x)
