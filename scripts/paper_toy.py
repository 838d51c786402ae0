"""Weights that the paper's algorithms give to the two modes of its toy model, each .5 in truth.

    python scripts/paper_toy.py --seeds 41-45 --budgets 1000,10000

Every run prints one line: method, simulations, seed, weight of the mode theta_1 + theta_2 > 0, C2ST, and how training
ended.
"""

import argparse
import json
import time
import warnings
from functools import partial

import numpy as np

from unle.diagnose import c2st_fast
from unle.errors import UnleWarning
from unle_bench import TASKS
from unle_bench.cli.bench import whole_numbers
from unle_bench.methods.registry import Registry
from unle_bench.sweep.batched_runs import run_together

FILES = ("scripts/paper_variants.py",)


def one(method: str, budget: int, seed: int, draws: int) -> dict:
    """Run a method once, and weigh the modes of its draws."""
    task = TASKS["bimodal"]
    x_o, adapter = task.observation(1), Registry.with_files(FILES).method(method)
    found = adapter.infer(task, budget=budget, seed=seed, observations={1: x_o}, draws=draws)
    if 1 not in found.draws:
        return {"method": method, "budget": budget, "seed": seed, "failed": found.reasons[1]}
    values, exact = np.asarray(found.draws[1]), task.reference(x_o, draws, seed=1)
    weight, score = float(np.mean(values.sum(axis=1) > 0)), float(c2st_fast(exact, values))
    return {"method": method, "budget": budget, "seed": seed, "weight": weight, "c2st": score, **found.notes["fit"]}


def main() -> None:
    """Run the seeds of every method and budget side by side."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--methods", default="aunle-paper,aunle-paper-smc,sunle-paper")
    parser.add_argument("--budgets", default="1000")
    parser.add_argument("--seeds", default="41-45")
    parser.add_argument("--draws", type=int, default=10_000)
    given = parser.parse_args()
    seeds, budgets = whole_numbers(given.seeds, "--seeds"), whole_numbers(given.budgets, "--budgets")
    warnings.simplefilter("ignore", UnleWarning)
    for method in given.methods.split(","):
        for budget in budgets:
            started = time.perf_counter()
            rows = run_together([partial(one, method, budget, seed, given.draws) for seed in seeds])
            for row in rows:
                print(json.dumps(row), flush=True)
            weights = [row["weight"] for row in rows if "weight" in row]
            spread = {"mean": np.mean(weights), "sd": np.std(weights, ddof=1)} if len(weights) > 1 else {}
            print(method, budget, spread, f"{time.perf_counter() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
