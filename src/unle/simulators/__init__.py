"""Running simulators: seeds for every simulation, failures as invalid rows, nothing lost.

What runs inside a simulator's process imports numpy and the simulator, never jax.
"""

from unle.simulators.batched import batched as batched
from unle.simulators.dry_run import DryRun as DryRun
from unle.simulators.dry_run import dry_run as dry_run
from unle.simulators.jax_simulator import jax_simulator as jax_simulator
from unle.simulators.record import Simulations as Simulations
from unle.simulators.run import simulate as simulate
from unle.simulators.run import simulate_at as simulate_at
from unle.simulators.run_round import fill as fill
from unle.simulators.subprocess_simulator import command as command
