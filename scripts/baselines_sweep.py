"""Measure the baselines: C2ST against reference posteriors, over observations and seeds, one JSON line per fit.

    python scripts/baselines_sweep.py "'two_moons',1000,[0,1,2],'nle'"
    python scripts/baselines_sweep.py "'slcp',10000,[0],'nle-spline'" "'slcp',10000,[0],'smnle-sliced'"
    python scripts/baselines_sweep.py "'lotka_volterra',1000,[0],'snle',[1,2,3]"       # these observations only

Each argument is (task, budget, seeds, method), or (task, budget, seeds, method, observations); all ten observations by
default.  Methods: nle, nle-spline, snle, snle-spline, smnle, smnle-sliced, smnle-exchange, smnle-sliced-exchange, and
aunle for comparison.  A sequential method runs once per observation, in ten rounds.  Official observations and
references are used where the `sbibm` data files are installed.  A posterior without finite draws counts with C2ST 1.

Where flowjax is not installed, carry these pure-Python packages along in a folder on PYTHONPATH, each with its
.dist-info folder, from which it reads its version: flowjax, paramax, lineax.  The rest of what flowjax asks for
(equinox, jaxtyping, optax, tqdm) comes with unle's own dependencies.  smnle needs none of them.
"""

import argparse
import ast
import json
import time

import jax
import numpy as np

import unle
from unle.diagnose import c2st_fast_batch

DRAWS = 10_000
ROUNDS = 10


def amortised(name: str, prior: unle.Prior):
    """Return the method of that name, or None if it is sequential."""
    methods = {
        "aunle": lambda: unle.AUNLE(prior),
        "nle": lambda: unle.NLE(prior),
        "nle-spline": lambda: unle.NLE(prior, flow=unle.models.SplineFlow()),
        "smnle": lambda: unle.SMNLE(prior),
        "smnle-sliced": lambda: unle.SMNLE(prior, sliced=True),
        "smnle-exchange": lambda: unle.SMNLE(prior, normaliser=None),
        "smnle-sliced-exchange": lambda: unle.SMNLE(prior, sliced=True, normaliser=None),
        "snle": lambda: None,
        "snle-spline": lambda: None,
    }
    if name not in methods:
        raise SystemExit(f"expected a method among {', '.join(methods)}; got {name}")
    return methods[name]()


def sweep(name: str, budget: int, seeds, method: str, observations=tuple(range(1, 11))) -> None:
    """Fit for every seed, score every observation, and print one line each and one for all."""
    task = unle.task(name)
    xs = [task.observation(i) for i in observations]
    official = [task.official_reference(i) for i in observations]
    references = [task.reference(x, DRAWS, seed=0) if r is None else r for r, x in zip(official, xs, strict=True)]
    references = [np.asarray(reference)[:DRAWS] for reference in references]
    scores = []
    for seed in seeds:
        start = time.perf_counter()
        draws, notes = infer(task, budget, seed, method, xs)
        seconds = time.perf_counter() - start
        values = score(references, draws)
        scores.append(values)
        line = {"task": name, "budget": budget, "method": method, "seed": seed, "seconds": round(seconds, 1), **notes}
        line |= {"mean": round(float(values.mean()), 4), "c2st": [round(float(v), 4) for v in values]}
        print(json.dumps(line), flush=True)
    every = np.concatenate(scores)
    total = {"task": name, "budget": budget, "method": method, "mean": round(float(every.mean()), 4)}
    print(json.dumps({**total, "sd": round(float(every.std()), 4), "posteriors": len(every)}), flush=True)


def infer(task, budget: int, seed: int, method: str, xs) -> tuple[list[np.ndarray], dict]:
    """Return draws for every observation, and what the fit said of itself."""
    records: list[dict] = []

    def note(**record):
        records.append(record)

    fitted = amortised(method, task.prior)
    if fitted is not None:
        theta = task.prior.sample(budget, seed=seed)
        x = np.asarray(task.simulate(theta, seed + 1000))
        posterior = fitted.fit((theta, x), seed=seed, on_metrics=note)
        summary = [r for r in records if r["stage"] in ("fitted", "normalised")]
        notes = {k: v for r in summary for k, v in r.items() if k != "stage" and not isinstance(v, list)}
        return [np.asarray(d)[:DRAWS] for d in posterior.sample_many(xs, DRAWS, seed=seed)], notes
    flow = unle.models.SplineFlow() if method.endswith("spline") else unle.models.Maf()
    snle = unle.SNLE(task.prior, task.simulator, flow=flow)
    runs = [snle.run(x, budget=budget, rounds=ROUNDS, seed=seed) for x in xs]
    draws = [np.asarray(r.posterior.sample(x, DRAWS, seed=seed))[:DRAWS] for r, x in zip(runs, xs, strict=True)]
    return draws, {"rows_in_region": [r.rounds[-1].used for r in runs]}


def score(references: list[np.ndarray], draws: list[np.ndarray]) -> np.ndarray:
    """Return C2ST for each observation; 1 where draws are not finite."""
    finite = [i for i, d in enumerate(draws) if np.isfinite(d).all()]
    values = np.ones(len(draws))
    if finite:
        values[finite] = np.asarray(c2st_fast_batch([references[i] for i in finite], [draws[i] for i in finite]))
    return values


def main() -> None:
    """Run one sweep per argument."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweeps", nargs="+", metavar="SWEEP", help="as above")
    sweeps = parser.parse_args().sweeps
    print(json.dumps({"device": jax.devices()[0].device_kind, "jax": jax.__version__}), flush=True)
    for argument in sweeps:
        sweep(*ast.literal_eval(f"({argument})"))


if __name__ == "__main__":
    main()
