"""Check the built-in tasks: exact samplers against the benchmark's reference draws, and simulations per second.

    python scripts/tasks.py references --json references.json        # every task, three observations; an hour
    python scripts/tasks.py references sir two_moons --observations 1 2 3
    python scripts/tasks.py speed                                    # simulations per second, warm

A reference passes when the classifier cannot tell the two sets of 10,000 draws apart: C2ST between 0.48 and 0.52.
Results are appended to the JSON file one by one, and what it holds is not done again.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.random as jr
import numpy as np

from unle.diagnose import c2st, c2st_fast
from unle_bench import TASKS, task

LOW, HIGH = 0.48, 0.52
ROWS = 100_000
OF_THE_BENCHMARK = [name for name in TASKS if name != "pyloric"]  # it has no reference, and takes a second a simulation


def main() -> int:
    """Run what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["references", "speed"])
    parser.add_argument("tasks", nargs="*", default=OF_THE_BENCHMARK)
    parser.add_argument("--observations", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--exact", action="store_true", help="scikit-learn's classifier instead of the fast one")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    names = options.tasks
    return speed(names) if options.what == "speed" else references(names, options)


def references(names: list[str], options: argparse.Namespace) -> int:
    """Print one line per task and observation; the number of failures is the exit status."""
    done = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    failures = 0
    for name in names:
        one = task(name)
        if one.observation_source != "official":
            print(f"{name}: no official reference")
            continue
        for i in options.observations:
            label = f"{name} {i} {options.draws}" + (" exact" if options.exact else "")
            if label not in done:
                start = time.perf_counter()
                ours = one.reference(one.observation(i), options.draws, seed=i)
                drawn = time.perf_counter()
                value = (c2st if options.exact else c2st_fast)(one.official_reference(i)[: options.draws], ours)
                done[label] = {"c2st": value, "draw_s": drawn - start, "score_s": time.perf_counter() - drawn}
                if options.json:
                    options.json.write_text(json.dumps(done, indent=1))
            value = done[label]["c2st"]
            good = LOW <= value <= HIGH
            failures += not good
            print(f"{label}: {value:.4f} {'' if good else 'OUTSIDE'} (draws {done[label]['draw_s']:.1f} s)", flush=True)
    return failures


def speed(names: list[str]) -> int:
    """Print simulations per second, on the host in batches and in JAX, compilation apart."""
    print(f"{jax.devices()[0].device_kind}, {ROWS:,} simulations each")
    for name in names:
        one = task(name)
        theta = one.prior.sample(ROWS, seed=0)
        one.simulate(theta[:2000], 0)  # compiles what there is to compile
        start = time.perf_counter()
        one.simulate(theta, 1)
        rows = ROWS / (time.perf_counter() - start)
        run = jax.jit(jax.vmap(one.on_device))
        blocks = np.array_split(theta, 20)  # of equal size
        jax.block_until_ready(run(jr.split(jr.key(0), len(blocks[0])), blocks[0]))
        start = time.perf_counter()
        for k, block in enumerate(blocks):
            jax.block_until_ready(run(jr.split(jr.key(k), len(block)), block))
        print(f"{name:26}{rows:14,.0f} /s{ROWS / (time.perf_counter() - start):14,.0f} /s in JAX", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
