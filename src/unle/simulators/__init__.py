"""Running simulators: seeds for every simulation, failures as invalid rows, nothing lost.

What runs inside a simulator's process imports numpy and the simulator, never jax.
"""

from unle.simulators.batched import Batched, batched
from unle.simulators.dry_run import DryRun, dry_run
from unle.simulators.jax_simulator import OnDevice, jax_simulator
from unle.simulators.record import Simulations
from unle.simulators.run import simulate, simulate_at
from unle.simulators.run_round import fill
from unle.simulators.subprocess_simulator import command

__all__ = [
    "Batched",
    "DryRun",
    "OnDevice",
    "Simulations",
    "batched",
    "command",
    "dry_run",
    "fill",
    "jax_simulator",
    "simulate",
    "simulate_at",
]
