"""The adversary's simulators, grouped by what they attack."""

from unle_bench.adversary.simulator import Adversary
from unle_bench.adversary.simulators import (
    atoms,
    bounds,
    degenerate,
    dependence,
    failures,
    few,
    many,
    modes,
    scaling,
    series,
    tails,
)

ADVERSARIES: dict[str, Adversary] = {
    one.name: one
    for group in (tails, atoms, modes, bounds, dependence, degenerate, scaling, failures, few, series, many)
    for one in group.SIMULATORS
}
