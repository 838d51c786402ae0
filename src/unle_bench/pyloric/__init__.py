"""The pyloric network: a simulator of three neurons, its statistics, and an observation of a living one.

Reading order: `specification` (all equations and constants), `noise`, `bursts` and `statistics` (from voltages to
numbers), `simulators` (what `unle.simulate` calls); then the engines: `on_cpu` with `lookup` and `compiled` (Numba),
`in_jax` for accelerators. Nothing but `in_jax` imports jax: simulations run in worker processes.
"""
