"""Running simulators: a seed for every simulation, failures as invalid rows, nothing lost.

A simulator and parameters come in; `Simulations` go out, or rows in a `SimulationStore`. Read in this order:
`run_round` (the public functions), `simulations` (their result), `piece` (what runs beside the
simulator), `dispatch` and `workers` (many processes), `sandbox` and `child` (simulators that
hang or crash); `jax_simulators` and `subprocess_simulator` (other kinds of simulators); `dry_runs`.

What runs inside a simulator's process imports numpy and the simulator, never jax.
"""

from unle.simulators.dry_runs import DryRun, dry_run
from unle.simulators.jax_simulators import JaxSimulator, jax_simulator
from unle.simulators.piece import Batched, batched
from unle.simulators.run_round import check_simulator, simulate, simulate_at, simulate_into
from unle.simulators.simulations import Simulations, summarise
from unle.simulators.subprocess_simulator import command
from unle.simulators.workers import MODEL_PREFIX, dask_executor

__all__ = [
    "MODEL_PREFIX",
    "Batched",
    "DryRun",
    "JaxSimulator",
    "Simulations",
    "batched",
    "check_simulator",
    "command",
    "dask_executor",
    "dry_run",
    "jax_simulator",
    "simulate_into",
    "simulate",
    "simulate_at",
    "summarise",
]
