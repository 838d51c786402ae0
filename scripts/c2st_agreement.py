"""Measure how the fast C2ST (JAX) and the benchmark's (scikit-learn) agree, and how much faster the first is.

    python scripts/c2st_agreement.py --json agreement.json            # twenty pairs; half an hour on two cores
    python scripts/c2st_agreement.py --pairs 4 --draws 2000

Each pair is a set of reference draws and a set of exact draws blurred by normal noise of 0, 0.1, 0.3 or 1 standard
deviation, on five tasks: values from 1/2 to almost 1.  Both classifiers train by chance, so the difference between two
classifier seeds of scikit-learn is measured too (`--seeds`): no two implementations can agree better than that.
Results are appended to the file pair by pair, and what it holds is not done again.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np

from unle.bench import task
from unle.diagnose import c2st, c2st_fast

TASKS = ("two_moons", "slcp", "lotka_volterra", "sir", "gaussian_mixture")
BLURS = (0.0, 0.1, 0.3, 1.0)


def main() -> None:
    """Score all pairs and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seeds", action="store_true", help="score by scikit-learn with another seed as well")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    done = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    for name, blur in [(name, blur) for blur in BLURS for name in TASKS][: options.pairs]:
        label = f"{name} {blur} {options.draws}"
        if label not in done:
            done[label] = score(name, blur, options)
            if options.json:
                options.json.write_text(json.dumps(done, indent=1))
        one = done[label]
        line = f"{label:34} fast {one['fast']:.4f} ({one['fast_s']:.1f} s), scikit-learn {one['slow']:.4f}"
        other = f", another seed {one['other']:.4f}" if "other" in one else ""
        print(f"{line} ({one['slow_s']:.1f} s, {one['slow_s'] / one['fast_s']:.1f} times){other}", flush=True)
    differences = np.array([one["fast"] - one["slow"] for one in done.values()])
    times = np.array([[one["fast_s"], one["slow_s"]] for one in done.values()]).sum(axis=0)
    print(
        f"{len(done)} pairs: largest difference {np.abs(differences).max():.4f}, mean {differences.mean():+.4f}, "
        f"root mean square {np.sqrt(np.mean(differences**2)):.4f}; in all {times[1] / times[0]:.1f} times as fast"
    )


def score(name: str, blur: float, options: argparse.Namespace) -> dict[str, float]:
    """Score one pair both ways."""
    one, n = task(name), options.draws
    x_o = one.observation(1)
    official = one.official_reference(1)
    reference = (one.reference(x_o, n, seed=0) if official is None else official)[:n]
    draws = one.reference(x_o, n, seed=1)
    draws = draws + blur * reference.std(axis=0) * np.random.default_rng(0).normal(size=draws.shape)
    c2st_fast(reference, draws, max_epochs=1, jobs=options.jobs)  # compiles; a sweep scores many pairs of one shape
    start = time.perf_counter()
    fast = c2st_fast(reference, draws, jobs=options.jobs)
    middle = time.perf_counter()
    slow = c2st(reference, draws, jobs=options.jobs)
    record = {"fast": fast, "slow": slow, "fast_s": middle - start, "slow_s": time.perf_counter() - middle}
    return record | ({"other": c2st(reference, draws, jobs=options.jobs, seed=2)} if options.seeds else {})


if __name__ == "__main__":
    main()
