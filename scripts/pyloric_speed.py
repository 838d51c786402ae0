"""Time the pyloric simulator: statistics included, compilation apart.

    python scripts/pyloric_speed.py cpu                        one core, compiled engine
    python scripts/pyloric_speed.py jax --batch 50000          the default device of JAX
    python scripts/pyloric_speed.py jax --batch 10000 50000 --unroll 4 8 16

Prints one line of JSON per measurement.
"""

import argparse
import json
import platform
import time

import numpy as np

from unle_bench.pyloric.simulators import OnCpu, statistics
from unle_bench.pyloric.specification import LOWER, SAMPLES, UPPER


def prior(n: int) -> np.ndarray:
    """Return parameters drawn from the prior."""
    return np.random.default_rng(0).uniform(LOWER, UPPER, (n, len(LOWER)))


def on_cpu(n: int) -> None:
    """Time single simulations on one core."""
    simulator, theta = OnCpu("paper"), prior(n)
    begin = time.perf_counter()
    simulator(theta[0], np.random.default_rng(0))
    first = time.perf_counter() - begin
    wall, used = time.perf_counter(), time.process_time()
    valid = sum(np.isfinite(simulator(row, np.random.default_rng(i))).all() for i, row in enumerate(theta))
    wall, used = time.perf_counter() - wall, time.process_time() - used
    report(engine="numba", machine=platform.processor() or platform.machine(), first_call_s=first, simulations=n,
           seconds_each=wall / n, core_seconds_each=used / n, valid=int(valid))  # fmt: skip


def in_jax(batch: int, unroll: int, samples: int, repeats: int) -> None:
    """Time a whole batch on the default device."""
    import jax
    import jax.numpy as jnp
    import jax.random as jr

    from unle_bench.pyloric.in_jax import run

    def one(key, theta):
        return statistics(run(theta, key, samples=samples, unroll=unroll).bursts, "paper", jnp)

    theta = jnp.asarray(prior(batch), jnp.float32)
    begin = time.perf_counter()
    program = jax.jit(jax.vmap(one)).lower(jr.split(jr.key(0), batch), theta).compile()
    compiling = time.perf_counter() - begin
    seconds = []
    for repeat in range(repeats):
        keys = jax.block_until_ready(jr.split(jr.key(repeat), batch))
        begin = time.perf_counter()
        x = jax.block_until_ready(program(keys, theta))
        seconds.append(time.perf_counter() - begin)
    memory = program.memory_analysis()
    share = samples / SAMPLES
    report(engine="jax", device=str(jax.devices()[0].device_kind), batch=batch, unroll=unroll, samples=samples,
           compile_s=compiling, seconds=seconds, full_simulations_per_s=batch * share / min(seconds),
           valid=float(np.isfinite(np.asarray(x)).all(axis=1).mean()),
           temporary_gb=getattr(memory, "temp_size_in_bytes", 0) / 1e9)  # fmt: skip


def report(**facts) -> None:
    """Print a line of JSON."""
    print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in facts.items()}), flush=True)


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=["cpu", "jax"])
    parser.add_argument("--simulations", type=int, default=50, help="on a CPU core")
    parser.add_argument("--batch", type=int, nargs="+", default=[50_000])
    parser.add_argument("--unroll", type=int, nargs="+", default=[8], help="steps per turn; 1 on a CPU")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="a multiple of 80; fewer for a quick look")
    parser.add_argument("--repeats", type=int, default=2)
    chosen = parser.parse_args()
    if chosen.engine == "cpu":
        on_cpu(chosen.simulations)
        return
    for batch in chosen.batch:
        for unroll in chosen.unroll:
            in_jax(batch, unroll, chosen.samples, chosen.repeats)


if __name__ == "__main__":
    main()
