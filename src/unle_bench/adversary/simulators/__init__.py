"""The adversary's simulators, grouped by what they attack."""

from unle_bench.adversary.simulator import Adversary
from unle_bench.adversary.simulators import (
    atoms,
    bounds,
    degenerate,
    dependence,
    edges,
    failures,
    few,
    many,
    modes,
    recurring,
    scaling,
    series,
    shapes,
    tails,
)

GROUPS = (
    *(tails, atoms, modes, bounds, dependence, degenerate, scaling, failures, few, series, many),
    *(edges, recurring, shapes),
)

ADVERSARIES: dict[str, Adversary] = {one.name: one for group in GROUPS for one in group.SIMULATORS}
