r"""Time AUNLE against the NLE of the `sbi` toolbox on Two Moons: same simulations, same observation, same machine.

Each program runs in a fresh process, one after the other.  Both get 1,000 simulations, fit, and make 10,000 posterior
draws; compilation is part of the time, and nothing that was compiled before is used.  NLE has its defaults throughout
(a MAF, its own stopping rule, its own MCMC), and so has AUNLE.  Both sets of draws are scored against exact ones (C2ST:
0.5 is perfect, 1 is worst).  Processor seconds are those of all threads: on a shared machine they say more than the
wall does.

AUNLE then draws for a second observation in the same process.  Nothing may be compiled for it; the script fails if
something was.

`sbi` needs an environment of its own, see `scripts/versus.py`:

    python scripts/compare_with_sbi.py --sbi-python sbi-env/bin/python --repetitions 3
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from versus import Clock, machine, options_of, print_table, print_versions, run_child, score, write_child

TASK = "two_moons"
COMPILED = "/jax/core/compile/backend_compile_duration"  # the event that jax records for every compilation
CLOCKS = {"seconds": "wall seconds", "processor": "processor seconds"}
STAGES = ["import", "fit", "draws", "second observation"]


def main() -> int:
    """Run both programs and print the comparison."""
    parser = options_of(__doc__, simulations=1000)
    parser.add_argument("--repetitions", type=int, default=1, help="with simulations of so many seeds, from --seed on")
    options = parser.parse_args()
    if options.child:
        {"unle": run_unle, "sbi": run_sbi}[options.child](options.folder, options)
        return 0
    runs = []
    for seed in range(options.seed, options.seed + options.repetitions):
        options.seed = seed
        with tempfile.TemporaryDirectory() as name:
            runs.append(compare(Path(name), options))
        if options.json:
            options.json.write_text(json.dumps(runs, indent=2))
    print_ratios(runs)
    return 1 if any(run["unle"]["compiled"] for run in runs) else 0


def compare(folder: Path, options: argparse.Namespace) -> dict:
    """Run both programs on the simulations of one seed, one after the other, and print how they did."""
    write_data(folder, options)
    print(machine(), flush=True)
    results = {}
    for child, python in (("unle", sys.executable), ("sbi", options.sbi_python)):
        print(f"running {child} ...", flush=True)
        results[child] = run_child(__file__, child, python, folder, options)
    report(folder, results, options)
    return {"seed": options.seed, **results}


def write_data(folder: Path, options: argparse.Namespace) -> None:
    """Simulate the training set and write it, with the two observations."""
    import unle

    task = unle.task(TASK)
    theta = task.prior.sample(options.simulations, seed=options.seed)
    x = task.simulate(theta, seed=options.seed + 1)
    np.savez(folder / "data.npz", theta=theta, x=x, x_1=task.observation(1), x_2=task.observation(2))


def run_unle(folder: Path, options: argparse.Namespace) -> None:
    """Fit and draw with AUNLE; then draw for the second observation and count compilations."""
    clock = Clock()
    import equinox
    import jax

    import unle

    task = unle.task(TASK)
    method = unle.AUNLE(task.prior)
    clock.lap("import")
    data = np.load(folder / "data.npz")
    posterior = method.fit((data["theta"], data["x"]), seed=options.seed)
    clock.lap("fit")
    draws = np.asarray(posterior.sample(data["x_1"], options.draws, seed=options.seed))  # on the host: it is finished
    clock.lap("draws")
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, seconds, **_: compiled.append(event) if event == COMPILED else None
    )
    clock.lap("(listener)")
    second = np.asarray(posterior.sample(data["x_2"], options.draws, seed=options.seed + 1))
    clock.lap("second observation")
    del clock.seconds["(listener)"], clock.processor["(listener)"]
    jax.jit(lambda x: x + 1)(1.0)  # the listener must be able to hear
    if not compiled:
        sys.exit("jax did not report a compilation that certainly happened; has the event another name now?")
    record = {
        "seconds": clock.seconds,
        "processor": clock.processor,
        "compiled": len(compiled) - 1,
        "versions": {"unle": unle.__version__, "jax": jax.__version__, "equinox": equinox.__version__},
        "device": jax.devices()[0].device_kind,
    }
    write_child(folder, "unle", record, first=draws, second=second)


def run_sbi(folder: Path, options: argparse.Namespace) -> None:
    """Fit and draw with NLE, as its documentation does."""
    clock = Clock()
    import sbi
    import torch
    from sbi.inference import NLE
    from sbi.utils import BoxUniform

    torch.manual_seed(options.seed)
    inference = NLE(BoxUniform(low=-torch.ones(2), high=torch.ones(2)), show_progress_bars=False)
    clock.lap("import")
    data = {name: torch.as_tensor(values, dtype=torch.float32) for name, values in np.load(folder / "data.npz").items()}
    inference.append_simulations(data["theta"], data["x"]).train()
    clock.lap("fit")
    posterior = inference.build_posterior()
    draws = posterior.sample((options.draws,), x=data["x_1"], show_progress_bars=False).numpy()
    clock.lap("draws")
    second = posterior.sample((options.draws,), x=data["x_2"], show_progress_bars=False).numpy()
    clock.lap("second observation")
    versions = {"sbi": sbi.__version__, "torch": torch.__version__}
    record = {"seconds": clock.seconds, "processor": clock.processor, "versions": versions, "device": "cpu"}
    write_child(folder, "sbi", record, first=draws, second=second)


def report(folder: Path, results: dict[str, dict], options: argparse.Namespace) -> None:
    """Score the draws, and print everything."""
    data = np.load(folder / "data.npz")
    for name, result in results.items():
        sets = np.load(folder / f"{name}.npz")
        result["c2st"] = {}
        for which, x_o in (("first", data["x_1"]), ("second", data["x_2"])):
            draws = sets[which]
            draws = draws[np.linspace(0, len(draws) - 1, options.draws).astype(int)]  # few draws are rounded up
            result["c2st"][which] = score(TASK, x_o, draws, seed=options.seed)
        for clock in CLOCKS:
            result[clock]["fit + draws"] = result[clock]["fit"] + result[clock]["draws"]

    print(f"\n{TASK}, {options.simulations:,} simulations of seed {options.seed}, {options.draws:,} draws; first call")
    columns = ["unle AUNLE", "sbi NLE"]
    for clock, title in CLOCKS.items():
        print(f"{title}:")
        print_table(columns, {s: [result[clock][s] for result in results.values()] for s in (*STAGES, "fit + draws")})
    scores = {f"C2ST, {which}": [result["c2st"][which] for result in results.values()] for which in ("first", "second")}
    print_table([], scores, digits=3)
    print_versions(results)
    print(f"functions compiled for the second observation: {results['unle']['compiled']}", flush=True)


def print_ratios(runs: list[dict]) -> None:
    """Print how long AUNLE took, as a share of NLE's time, for every repetition."""
    print("\nfit + draws, AUNLE / NLE:")
    for clock, title in CLOCKS.items():
        ratios = [run["unle"][clock]["fit + draws"] / run["sbi"][clock]["fit + draws"] for run in runs]
        print(f"  {title}: {', '.join(f'{ratio:.2f}' for ratio in ratios)}")


if __name__ == "__main__":
    sys.exit(main())
