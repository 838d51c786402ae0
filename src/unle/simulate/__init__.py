"""Running simulators: seeds for every simulation, failures as invalid rows, nothing lost.

What runs inside a simulator's process imports numpy and the simulator, never jax.
"""

from unle.simulate.batched import batched as batched
from unle.simulate.commanding import command as command
from unle.simulate.dry import DryRun as DryRun
from unle.simulate.dry import dry_run as dry_run
from unle.simulate.filling import fill as fill
from unle.simulate.on_device import jax_simulator as jax_simulator
from unle.simulate.record import Simulations as Simulations
from unle.simulate.run import simulate as simulate
from unle.simulate.run import simulate_at as simulate_at
