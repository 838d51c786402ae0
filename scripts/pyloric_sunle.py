"""Measure SUNLE on the pyloric network: every round, and then the posterior itself.

    python scripts/pyloric_sunle.py --seed 3 --first 50000 --rounds 10 --size 10000 --resimulate 10000
    python scripts/pyloric_sunle.py --seed 3 --paper
    python scripts/pyloric_sunle.py --engine cpu --workers 8 --first 10000 --rounds 2 --size 1000 --resimulate 1000
    python scripts/pyloric_sunle.py --show a.json b.json --figure rounds.png

The first is a run like those in docs/pyloric.md: minutes on a GPU. The third makes do with CPU cores, and needs
Numba; the first round has to bring 32 valid simulations, of which the prior has one in a hundred.

`--paper` is `SUNLE.paper` with the paper's settings for this network, on the same schedule of rounds.

Prints a line per round, and whether the energies were kept. Then draws of the posterior are simulated once more: the
share of those that are valid, and near x_o, should be what the fitted P(valid given theta) predicts at these draws
(not looked at with `--paper`).

`--json` keeps the results; the last line runs nothing and draws such files beside the published curves.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import unle
from unle.methods.rounds import RoundState
from unle.simulators import Simulations, simulate_at
from unle_bench import Task
from unle_bench.paper.pyloric_figures import energy_score, prior_scale, published_curves
from unle_bench.plot import RoundCurve, round_curves

Simulate = Callable[[np.ndarray, int], Simulations]  # of parameters and the number of a round
PAPER = {"width": 300, "depth": 9, "learning_rate": 1e-4}  # the paper's settings for this network


def simulator_of(task: Task, engine: str, *, seed: int, workers: int | None) -> Simulate:
    """Return what simulates a round: by the engine in JAX on the default device, or by the compiled one on cores."""
    if engine == "cpu":
        return lambda theta, number: simulate_at(task.simulator, theta, seed=seed, round=number, workers=workers)
    return lambda theta, number: simulate_at(task.on_device, theta, seed=seed, round=number)


def measure(
    task: Task, sunle: Any, sizes: list[int], simulate: Simulate, *, resimulate: int, seed: int
) -> dict[str, Any]:
    """Run SUNLE, print what happens, and return it.

    Args:
        task: the network.
        sunle: `unle.SUNLE(prior)` or `unle.SUNLE.paper(prior)`.
        sizes: simulations of each round, the first from the prior.
        simulate: of `simulator_of`.
        resimulate: draws of the posterior that are simulated once more.
        seed: of everything.
    """
    x_o, begin = task.observation(1), time.perf_counter()
    state = sunle.begin(x_o, budget=sum(sizes), rounds=sizes, seed=seed)
    rounds, fitted, scale = [], {}, None
    for number in range(len(sizes)):
        start = time.perf_counter()
        simulations = simulate(state.propose(), number)
        simulated = time.perf_counter()
        scale = prior_scale(simulations.x) if scale is None else scale
        state = sunle.update(state, simulations)
        facts = {"round": number, **scored(simulations, scale)}
        rounds.append(facts | {"simulate_s": simulated - start, "fit_s": time.perf_counter() - simulated})
        print(line(f"round {number}", rounds[-1]), flush=True)

    def on_metrics(**facts: Any) -> None:
        if facts["stage"] == "fitted":
            fitted.update(facts)

    start = time.perf_counter()
    posterior = sunle.finish(state, on_metrics=on_metrics).posterior
    training = time.perf_counter() - start
    print(f"energies kept: {fitted['energy']} (gain {fitted['gain']:.3f}), {training:.1f} s", flush=True)

    start = time.perf_counter()
    theta = np.asarray(posterior.sample(x_o, resimulate, seed=seed), float)
    theta = np.random.default_rng(seed).permutation(theta)[:resimulate]  # there may be more, island by island
    drawing = time.perf_counter() - start
    simulations = simulate(theta, len(sizes))  # a round of its own: fresh noise
    final = {**scored(simulations, scale), "draw_s": drawing}
    total = time.perf_counter() - begin
    print(line("posterior", final))
    if isinstance(state, RoundState):
        near = float(state.fitting.near(simulations).mean())
        final |= {"near": near, "predicted": predicted(state.fitting.validity, theta)}
        print(f"P(valid and near x_o), predicted at these draws {final['predicted']:.4f}, observed {near:.4f}"
              f" (standard error {np.sqrt(near * (1 - near) / resimulate):.4f})")  # fmt: skip
    print(f"{total:.0f} s in all")
    energies = {"kept": fitted["energy"], "gain": float(fitted["gain"]), "train_s": training}
    energies |= {"recoveries": fitted["recoveries"]} if "recoveries" in fitted else {}
    return {"seed": seed, "sizes": sizes, "rounds": rounds, "energies": energies, "posterior": final, "total_s": total}


def scored(simulations: Simulations, scale: np.ndarray) -> dict[str, Any]:
    """Return how many are valid, with the standard error of that share, and how close the valid ones come."""
    n, valid = len(simulations), float(simulations.valid.mean())
    error = float(np.sqrt(valid * (1 - valid) / n))
    return {"simulations": n, "valid": valid, "error": error, "energy_score": energy_score(simulations.x, scale)}


def predicted(fit: Any, theta: np.ndarray) -> float:
    """Return the mean of the fitted P(valid and near x_o given theta); 1 if no simulation ever failed."""
    if fit is None:
        return 1.0
    log_probability = eqx.filter_jit(lambda validity, rows: jax.vmap(validity)(rows))
    return float(jnp.exp(log_probability(fit.validity, jnp.asarray(theta, jnp.float32))).mean())


def figure_of(results: list[dict[str, Any]]) -> Any:
    """Draw every run's rounds beside the published ones; each stands at the simulations made before it."""
    curves, points = published_curves()
    for result in results:
        before = np.cumsum(result["sizes"])[:-1].astype(float)
        rounds = result["rounds"][1:]
        valid, energy = (np.array([facts[name] for facts in rounds]) for name in ("valid", "energy_score"))
        name = f"{result.get('method', 'unle')}, {sum(result['sizes']):,}, seed {result['seed']}"
        curves.append(RoundCurve(name, before, valid, energy))
    return round_curves(curves, points=points)


def line(what: str, facts: dict[str, Any]) -> str:
    """Return a line to print."""
    seconds = ", ".join(f"{name.removesuffix('_s')} {facts[name]:.1f} s" for name in facts if name.endswith("_s"))
    numbers = f"{facts['simulations']:6d} simulations, valid {facts['valid']:.4f}"
    return f"{what:9} {numbers}, energy score {facts['energy_score']:.4f}, {seconds}"


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--first", type=int, default=50_000, help="simulations of the first round, from the prior")
    parser.add_argument("--rounds", type=int, default=10, help="after the first")
    parser.add_argument("--size", type=int, default=10_000, help="simulations of each of them")
    parser.add_argument("--resimulate", type=int, default=10_000, help="draws of the posterior, simulated once more")
    parser.add_argument("--paper", action="store_true", help="SUNLE as the paper prints it")
    parser.add_argument("--engine", choices=["jax", "cpu"], default="jax")
    parser.add_argument("--workers", type=int, help="processes, with --engine cpu")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--show", type=Path, nargs="+", help="run nothing, and draw these results, with --figure")
    parser.add_argument("--figure", type=Path, help="draw the rounds beside the published ones")
    chosen = parser.parse_args()
    if chosen.show:
        figure_of([json.loads(path.read_text()) for path in chosen.show]).savefig(chosen.figure or "rounds.png")
        return
    task = unle.task("pyloric")
    simulate = simulator_of(task, chosen.engine, seed=chosen.seed, workers=chosen.workers)
    sizes = [chosen.first, *[chosen.size] * chosen.rounds]
    sunle = unle.SUNLE.paper(task.prior, **PAPER) if chosen.paper else unle.SUNLE(task.prior)
    result = measure(task, sunle, sizes, simulate, resimulate=chosen.resimulate, seed=chosen.seed)
    origin = {"method": "sunle-paper" if chosen.paper else "unle", "device": jax.devices()[0].device_kind}
    if chosen.json:
        chosen.json.write_text(json.dumps({**origin, "engine": chosen.engine, **result}, indent=1) + "\n")
    if chosen.figure:
        figure_of([{**origin, **result}]).savefig(chosen.figure)


if __name__ == "__main__":
    main()
