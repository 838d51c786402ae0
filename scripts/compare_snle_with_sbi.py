r"""Time SUNLE against the SNLE of the `sbi` toolbox on SLCP: ten rounds each, same observation, same machine, one run.

One after the other, each in a fresh process: 10,000 simulations in ten rounds, then 10,000 posterior draws, compilation
included.  Both have their defaults: SNLE fits a masked autoregressive flow and proposes by its own MCMC.  Simulations
are made by the same code and their time counts for both.  Draws are scored against exact ones (C2ST: 0.5 is perfect,
1 is worst).

SNLE may take hours.  `--limit SECONDS` stops it; what is reported then is the time that it was given and the round it
was in, which shows no more than that it takes longer.  The time after every round is printed as it passes.

`sbi` needs an environment of its own, see `scripts/versus.py`:

    python scripts/compare_snle_with_sbi.py --sbi-python sbi-env/bin/python --limit 3600
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from versus import Clock, machine, options_of, print_table, print_versions, run_child, score, write_child

TASK, OBSERVATION, ROUNDS = "slcp", 1, 10


def main() -> int:
    """Run both and print the comparison."""
    parser = options_of(__doc__, simulations=10_000)
    parser.add_argument("--limit", type=float, help="seconds that SNLE is given; as many as it takes by default")
    options = parser.parse_args()
    if options.child:
        run_unle(options.folder, options)
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(machine(), flush=True)
        print("running unle ...", flush=True)
        ours = run_child(__file__, "unle", sys.executable, folder, options)
        print("running sbi ...", flush=True)
        theirs = run_sbi(folder, options)
        return report(folder, {"unle": ours, "sbi": theirs}, options)


def on_round(number: int, seconds: float) -> None:
    """Say how far one of them is."""
    print(f"  round {number} of {ROUNDS} done after {seconds:.0f} s", flush=True)


def run_unle(folder: Path, options: argparse.Namespace) -> None:
    """Run the rounds and draw."""
    clock = Clock()
    import jax

    import unle
    from unle_bench.methods.method_adapter import batched_task

    task = unle.task(TASK)
    x_o = task.observation(OBSERVATION)
    clock.lap("import")
    start = time.perf_counter()
    run = unle.SUNLE(task.prior, batched_task(task)).run(
        x_o,
        budget=options.simulations,
        rounds=ROUNDS,
        seed=options.seed,
        on_round=lambda done: on_round(done.number + 1, time.perf_counter() - start),
    )
    clock.lap("rounds")
    draws = np.asarray(run.posterior.sample(x_o, options.draws, seed=options.seed))[: options.draws]
    clock.lap("draws")
    versions = {"unle": unle.__version__, "jax": jax.__version__}
    record = {"seconds": clock.seconds, "versions": versions, "device": jax.devices()[0].device_kind, "stopped": None}
    write_child(folder, "unle", record, first=draws)


def run_sbi(folder: Path, options: argparse.Namespace) -> dict:
    """Let the benchmark's adapter run in the other environment, until the limit."""
    import unle
    from unle_bench.methods.peers import ENVIRONMENT_VARIABLE, Peer

    os.environ[ENVIRONMENT_VARIABLE] = options.sbi_python
    task = unle.task(TASK)
    peer = Peer("nle", rounds=ROUNDS, limit=options.limit, on_round=on_round)
    start = time.perf_counter()
    wanted = {"budget": options.simulations, "seed": options.seed, "draws": options.draws}
    outcome = peer.infer(task, observations={OBSERVATION: task.observation(OBSERVATION)}, **wanted)
    spent = time.perf_counter() - start
    record = {"versions": outcome.notes.get("versions", {}), "device": "cpu", "after_round": outcome.notes["rounds"]}
    if outcome.reasons:
        return record | {"seconds": {"total": spent}, "stopped": outcome.reasons[OBSERVATION]}
    np.savez(folder / "sbi.npz", first=outcome.draws[OBSERVATION])
    draws = outcome.seconds["infer"]
    rounds = outcome.notes["rounds"][-1]
    return record | {"seconds": {"import": spent - rounds - draws, "rounds": rounds, "draws": draws}, "stopped": None}


def report(folder: Path, results: dict[str, dict], options: argparse.Namespace) -> int:
    """Score the draws and print everything; the exit status is 1 if SUNLE was slower."""
    import unle

    x_o = unle.task(TASK).observation(OBSERVATION)
    for name, result in results.items():
        seconds, done = result["seconds"], result["stopped"] is None
        result["total"] = seconds["rounds"] + seconds["draws"] if done else seconds["total"]
        draws = np.load(folder / f"{name}.npz")["first"] if done else None
        result["c2st"] = score(TASK, x_o, draws, seed=options.seed) if draws is not None else None

    both = list(results.values())
    print(f"\n{TASK}, {options.simulations:,} simulations in {ROUNDS} rounds, {options.draws:,} draws; seconds")
    rows = {stage: [result["seconds"].get(stage) for result in both] for stage in ("import", "rounds", "draws")}
    print_table(["unle SUNLE", "sbi SNLE"], rows | {"rounds + draws": [result["total"] for result in both]})
    print_table([], {"C2ST": [result["c2st"] for result in both]}, digits=3)
    ours, theirs = (result["total"] for result in both)
    stopped = results["sbi"]["stopped"]
    if stopped and theirs < ours:
        print(
            f"\nSNLE was {stopped}, before SUNLE's {ours:.0f} s were over: nothing can be said; try a larger --limit."
        )
    elif stopped:
        print(f"\nSNLE was {stopped}: SUNLE is more than {theirs / ours:.1f} times as fast.")
    else:
        print(f"\nrounds + draws: SUNLE is {theirs / ours:.1f} times as fast as SNLE.")
    print_versions(results)
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(), **results}, indent=2))
    return 0 if theirs > ours else 1


if __name__ == "__main__":
    sys.exit(main())
