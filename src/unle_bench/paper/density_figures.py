"""The two figures that show densities: the bimodal toy, and Two Moons."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from unle_bench.plot import Panel, density_panels, kernel_density
from unle_bench.results.results_query import ResultsQuery
from unle_bench.tasks.task import Task

POINTS, FINE = 161, 401  # per axis of a grid
BLUR, SHARP = 0.08, 0.015  # of kernel estimates, in standard deviations: thin crescents must stay thin
MARGIN = 0.15
SIMULATED = 400_000


def moons(results: ResultsQuery, methods: Sequence[str]) -> tuple[Any, list[str]]:
    """Return the figure, or None, and the methods in it."""
    task = results.registry.task("two_moons")
    rows, shown = [], []
    for method in methods:
        cell = results.pictured("two_moons", method, "draws")
        if cell is None:
            continue
        draws = results.record(cell, "draws")["draws"]
        first, second = _axes(draws, FINE)
        learned = None
        if results.pictured("two_moons", method, "density") == cell:
            record = results.record(cell, "density")
            learned = Panel(f"{method.upper()}: density", record["first"], record["second"], record["density"])
        blurred = kernel_density(draws, first, second, width=SHARP)
        exact = _posterior(task, task.observation(cell.observation), first, second)
        rows.append([learned, Panel("draws", first, second, blurred), Panel("exact", first, second, exact)])
        shown.append(method)
    return (density_panels(rows, [task.prior.names[:2]] * len(rows)) if rows else None), shown  # pyright: ignore[reportArgumentType]


def bimodal(results: ResultsQuery, methods: Sequence[str]) -> tuple[Any, list[str], Float[np.ndarray, " 2"]]:
    """Return the figure, or None, the methods in it, and the observation, the same for all of them."""
    task = results.registry.task("bimodal")
    above, below, shown = [], [], []
    number = None
    for method in methods:
        cell = results.pictured("bimodal", method, "draws", number)
        if cell is None:
            continue
        first, second = (np.linspace(-4.0, 4.0, POINTS) for _ in range(2))
        if number is None:
            number = cell.observation
            exact = _posterior(task, task.observation(number), first, second)
            below.append(Panel("exact posterior", first, second, exact))
            above.append(_likelihood(task, task.true_parameters(number)))
        shown.append(method)
        draws = results.record(cell, "draws")["draws"]
        below.append(Panel(f"{method.upper()}: draws", first, second, kernel_density(draws, first, second, width=BLUR)))
        above.append(None)
        if results.pictured("bimodal", method, "likelihood", number) == cell:
            record = results.record(cell, "likelihood")
            above[-1] = Panel(f"{method.upper()}: p(x | theta)", record["first"], record["second"], record["density"])
    names = [task.names_x, task.prior.names]
    figure = density_panels([above, below], names) if shown else None  # pyright: ignore[reportArgumentType]
    return figure, shown, task.observation(number or 1)


def _axes(draws: Float[np.ndarray, "n 2"], points: int = POINTS) -> list[np.ndarray]:
    low, high = draws.min(axis=0), draws.max(axis=0)
    room = MARGIN * (high - low)
    return [np.linspace(a, b, points) for a, b in zip(low - room, high + room, strict=True)]


def _posterior(task: Task, x_o: np.ndarray, first: np.ndarray, second: np.ndarray) -> Float[np.ndarray, "i j"]:
    points = np.stack(np.meshgrid(first, second, indexing="ij"), axis=-1).reshape(-1, 2)
    logs = task.log_likelihood(points, x_o) + np.asarray(task.prior.log_prob(points), dtype=np.float64)
    return np.exp(logs - logs.max()).reshape(len(first), len(second))


def _likelihood(task: Task, theta: np.ndarray) -> Panel:
    """Return p(x | theta), from so many simulations that a narrow kernel is smooth."""
    x = np.asarray(task.simulate(np.tile(theta, (SIMULATED, 1)), 0), dtype=np.float64)
    first, second = _axes(x[:4000])
    return Panel("simulator: p(x | theta)", first, second, kernel_density(x, first, second, width=0.03))
