"""The pyloric network of the crab: 31 conductances, and the rhythm of a living animal.

Three neurons and seven synapses, simulated for eleven seconds, summarised by period, burst durations and delays. About
one draw of the prior in a hundred is valid: the others do not burst, or not in turn. The likelihood is unknown,
so there is no exact posterior. `pyloric` has the eight free statistics, `pyloric_15` the fifteen of the papers, of
which seven are functions of the others, and `pyloric_18` plateau durations as well, on CPUs only.

References: Prinz, Bucher and Marder, 2004; Glaser et al., 2023, section 4.3; and `unle_bench.pyloric.specification`.
"""

import numpy as np
from jaxtyping import Float

from unle.errors import InputError
from unle.simulators import JaxSimulator, jax_simulator
from unle.space import Prior
from unle_bench.pyloric.simulators import OnCpu, names_of, observed, statistics
from unle_bench.pyloric.specification import LOWER, NAMES, UPPER
from unle_bench.pyloric.statistics import explain
from unle_bench.tasks.task import Task

PRIOR = Prior.uniform(low=LOWER, high=UPPER, names=NAMES)
BATCHES = (1_000, 10_000, 50_000)  # a batch of 10,000 takes hardly less time than one of 20,000: see docs/pyloric.md


def on_device(kind: str = "free", *, batch: int | tuple[int, ...] = BATCHES) -> JaxSimulator:
    """Return the simulator in JAX.

    Args:
        kind: which statistics: "free" or "paper"; plateaus are measured by the engine for CPUs only.
        batch: simulations of one compiled call, or several sizes.
    """
    if kind == "plateaus":
        raise InputError("expected statistics without plateaus in JAX; got 'plateaus'; try `OnCpu('plateaus')`.")
    names_of(kind)

    def simulate(key, theta):
        import jax.numpy as jnp

        from unle_bench.pyloric.in_jax import run

        return statistics(run(theta, key).bursts, kind, jnp)

    return jax_simulator(simulate, batch=batch, explain=explain)


def _rows(kind: str):
    def simulate_rows(theta: Float[np.ndarray, "n 31"], rng: np.random.Generator) -> Float[np.ndarray, "n dim_x"]:
        one = OnCpu(kind)
        return np.stack([one(row, child) for row, child in zip(theta, rng.spawn(len(theta)), strict=True)])

    return simulate_rows


def _task(name: str, kind: str, what: str) -> Task:
    return Task(
        name=name,
        description=f"31 conductances of a crab's pyloric network from {what} of its rhythm",
        prior=PRIOR,
        names_x=names_of(kind),
        simulator=OnCpu(kind),
        simulate_rows=_rows(kind),
        own={1: (None, tuple(observed(kind).tolist()))},
        observations=1,
        on_device=None if kind == "plateaus" else on_device(kind),
    )


TASKS = {
    task.name: task
    for task in (
        _task("pyloric", "free", "eight statistics"),
        _task("pyloric_15", "paper", "fifteen dependent statistics"),
        _task("pyloric_18", "plateaus", "eighteen statistics"),
    )
}
