"""Running simulators: seeds for every simulation, failures as invalid rows, nothing lost.

What runs inside a simulator's process imports numpy and the simulator, never jax.
"""

from unle.simulate.batched import batched as batched
from unle.simulate.record import Simulations as Simulations
from unle.simulate.run import simulate as simulate
from unle.simulate.run import simulate_at as simulate_at
