"""Measure how the fast C2ST (JAX) and the benchmark's (scikit-learn) agree, and how much faster the first is.

    python scripts/c2st_agreement.py --json docs/c2st_agreement.json      # twenty pairs; an hour on two cores
    python scripts/c2st_agreement.py --tasks two_moons --blurs 0.1 --jobs 2

Each pair is a set of reference draws and a set of exact draws blurred by normal noise of 0, 0.1, 0.3 or 1 standard
deviation, on five tasks: values from 1/2 to almost 1, built from seeds.

Both classifiers train by chance, and training amplifies rounding: scikit-learn gives another number on another
processor.  How much so is measured by scikit-learn itself, on the same draws multiplied by 1 + 1e-6, which changes
nothing but the rounding (`again`): no two implementations can agree better than that.  With several seeds the means
over seeds are compared.  Numbers are written to the file one by one, and what it holds is not done again.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np

from unle.diagnose import c2st, c2st_fast
from unle_bench import task

TASKS = ("two_moons", "gaussian_mixture", "sir", "lotka_volterra", "slcp")
BLURS = (0.0, 0.1, 0.3, 1.0)
NUDGE = np.float32(1 + 1e-6)


def main() -> None:
    """Score all pairs and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS))
    parser.add_argument("--blurs", type=float, nargs="+", default=list(BLURS))
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--again", action="store_true", help="measure what rounding does to scikit-learn as well")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    done = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    for name, blur in [(name, blur) for name in options.tasks for blur in options.blurs]:
        label = f"{name} {blur} {options.draws}"
        for one in scored(pair(name, blur, options.draws), done.setdefault(label, {}), options):
            done[label] = one
            if options.json:
                options.json.write_text(json.dumps(done, indent=1) + "\n")
        print(line(label, done[label]), flush=True)
    print(summary({label: one for label, one in done.items() if "slow" in one}))


def pair(name: str, blur: float, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return reference draws and blurred exact draws of a task's first observation."""
    one = task(name)
    x_o, official = one.observation(1), one.official_reference(1)
    reference = np.asarray(one.reference(x_o, n, seed=0) if official is None else official)[:n]
    draws = one.reference(x_o, n, seed=1)
    return reference, draws + blur * reference.std(axis=0) * np.random.default_rng(0).normal(size=draws.shape)


def scored(sets: tuple[np.ndarray, np.ndarray], record: dict, options: argparse.Namespace):
    """Yield the record of a pair, longer by one kind of score each time: one number per seed, and seconds."""
    ways = {"fast": (c2st_fast, 1), "slow": (c2st, 1)} | ({"again": (c2st, NUDGE)} if options.again else {})
    for way, (score, factor) in ways.items():
        for seed in options.seeds[len(record.get(way, [])) :]:
            if way == "fast":  # compile; a sweep scores many pairs of one shape
                c2st_fast(*sets, max_epochs=1, jobs=options.jobs)
            start = time.perf_counter()
            value = score(*(np.asarray(draws, np.float32) * factor for draws in sets), seed=seed, jobs=options.jobs)
            record[way] = [*record.get(way, []), round(float(value), 5)]
            record[f"{way}_s"] = round(record.get(f"{way}_s", 0.0) + time.perf_counter() - start, 2)
            yield record


def line(label: str, one: dict) -> str:
    """Return what is known of a pair."""
    fast, slow = np.mean(one["fast"]), np.mean(one["slow"])
    times = f"{one['fast_s']:.1f} s, {one['slow_s']:.1f} s, {one['slow_s'] / one['fast_s']:.1f} times"
    other = f", rounded otherwise {np.mean(one['again']) - slow:+.4f}" if "again" in one else ""
    return f"{label:30} fast {fast:.4f} scikit-learn {slow:.4f} ({times}): difference {fast - slow:+.4f}{other}"


def summary(done: dict[str, dict]) -> str:
    """Return the differences and times of all pairs in two lines."""
    differences = np.array([np.mean(one["fast"]) - np.mean(one["slow"]) for one in done.values()])
    again = np.array([np.mean(one["again"]) - np.mean(one["slow"]) for one in done.values() if "again" in one])
    times = np.array([[one["fast_s"], one["slow_s"]] for one in done.values()]).sum(axis=0)
    return f"fast: {_spread(differences)}; {times[1] / times[0]:.1f} times as fast in all" + (
        f"\nscikit-learn, rounded otherwise: {_spread(again)}" if len(again) else ""
    )


def _spread(differences: np.ndarray) -> str:
    within = np.sum(np.abs(differences) <= 0.01)
    return (
        f"{within} of {len(differences)} pairs within 0.01, largest difference {np.abs(differences).max():.4f}, "
        f"mean {differences.mean():+.4f}, root mean square {np.sqrt(np.mean(differences**2)):.4f}"
    )


if __name__ == "__main__":
    main()
