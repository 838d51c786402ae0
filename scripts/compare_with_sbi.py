r"""Time AUNLE against the NLE of the `sbi` toolbox on Two Moons: same simulations, same observation, same machine.

Each program runs in a fresh process, one after the other.  Both get 1,000 simulations, fit, and make 10,000 posterior
draws; compilation is part of the time.  NLE has its defaults throughout (a MAF, its own stopping rule, its own MCMC),
and so has AUNLE.  Both sets of draws are scored against exact ones (C2ST: 0.5 is perfect, 1 is worst).

AUNLE then draws for a second observation in the same process.  Nothing may be compiled for it; the script fails if
something was.

`sbi` needs an environment of its own:

    python -m venv sbi-env && sbi-env/bin/pip install torch==2.13.0 sbi==0.27.0
    python scripts/compare_with_sbi.py --sbi-python sbi-env/bin/python

The data travel in .npz files, so neither program needs to be able to import the other.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

TASK = "two_moons"
COMPILED = "/jax/core/compile/backend_compile_duration"  # the event that jax records for every compilation


def main() -> int:
    """Run both programs and print the comparison."""
    options = _options()
    if options.child:
        {"unle": run_unle, "sbi": run_sbi}[options.child](Path(options.folder), options)
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_data(folder, options)
        print(machine(), flush=True)
        results = {}
        for child, python in (("unle", sys.executable), ("sbi", options.sbi_python)):
            print(f"running {child} ...", flush=True)
            results[child] = run_child(child, python, folder, options)
        return report(folder, results, options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0], epilog="Example: " + __doc__.split("\n\n")[4].splitlines()[1].strip()
    )
    parser.add_argument("--sbi-python", default="sbi-env/bin/python", help="Python of an environment that has sbi")
    parser.add_argument("--simulations", type=int, default=1000)
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--child", choices=["unle", "sbi"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    return parser.parse_args()


def write_data(folder: Path, options: argparse.Namespace) -> None:
    """Simulate the training set and write it, with the two observations."""
    import unle

    task = unle.task(TASK)
    theta = task.prior.sample(options.simulations, seed=options.seed)
    x = task.simulate(theta, seed=options.seed + 1)
    np.savez(folder / "data.npz", theta=theta, x=x, x_1=task.observation(1), x_2=task.observation(2))


def run_child(child: str, python: str, folder: Path, options: argparse.Namespace) -> dict:
    """Run one program in a new process and return its seconds per stage."""
    arguments = ["--draws", str(options.draws), "--seed", str(options.seed)]
    # A compilation cache on disk would hide what a first run costs.
    environment = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    command = [python, __file__, "--child", child, "--folder", str(folder), *arguments]
    try:
        subprocess.run(command, check=True, env=environment | {"UNLE_PROGRESS": "0"})
    except FileNotFoundError:
        sys.exit(f"there is no Python at {python}; see the beginning of {__file__} for how to make an environment.")
    except subprocess.CalledProcessError as error:
        sys.exit(f"{child} failed with exit status {error.returncode}; its message is above.")
    return json.loads((folder / f"{child}.json").read_text())


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
    del clock.seconds["(listener)"]
    jax.jit(lambda x: x + 1)(1.0)  # the listener must be able to hear
    if not compiled:
        sys.exit("jax did not report a compilation that certainly happened; has the event another name now?")
    record = {
        "seconds": clock.seconds,
        "compiled": len(compiled) - 1,
        "versions": {"unle": unle.__version__, "jax": jax.__version__, "equinox": equinox.__version__},
        "device": jax.devices()[0].device_kind,
    }
    _write(folder, "unle", record, draws, second)


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
    _write(folder, "sbi", {"seconds": clock.seconds, "versions": versions, "device": "cpu"}, draws, second)


class Clock:
    """Seconds of each stage since the one before."""

    def __init__(self):
        self.seconds: dict[str, float] = {}
        self.last = time.perf_counter()

    def lap(self, stage: str) -> None:
        """Write down the time since the last lap."""
        now = time.perf_counter()
        self.seconds[stage] = now - self.last
        self.last = now


def _write(folder: Path, name: str, record: dict, draws: np.ndarray, second: np.ndarray) -> None:
    record["versions"]["python"] = platform.python_version()
    np.savez(folder / f"{name}.npz", first=draws, second=second)
    (folder / f"{name}.json").write_text(json.dumps(record))


def report(folder: Path, results: dict[str, dict], options: argparse.Namespace) -> int:
    """Score the draws, print everything, and return the exit status."""
    import unle
    from unle.diagnose import c2st_fast

    task, data = unle.task(TASK), np.load(folder / "data.npz")
    for name, result in results.items():
        sets = np.load(folder / f"{name}.npz")
        result["c2st"] = {}
        for which, x_o in (("first", data["x_1"]), ("second", data["x_2"])):
            draws = sets[which]
            draws = draws[np.linspace(0, len(draws) - 1, options.draws).astype(int)]  # few draws are rounded up
            reference = task.reference(x_o, options.draws, seed=options.seed)
            result["c2st"][which] = c2st_fast(reference, draws)
        seconds = result["seconds"]
        result["total"] = seconds["fit"] + seconds["draws"]

    stages = ["import", "fit", "draws", "second observation"]
    print(f"\n{TASK}, {options.simulations:,} simulations, {options.draws:,} draws; seconds of the first call")
    print(f"{'':22}{'unle AUNLE':>12}{'sbi NLE':>12}")
    for stage in stages:
        print(f"{stage:22}" + "".join(f"{results[name]['seconds'][stage]:12.1f}" for name in results))
    print(f"{'fit + draws':22}" + "".join(f"{results[name]['total']:12.1f}" for name in results))
    for which in ("first", "second"):
        print(f"{'C2ST, ' + which:22}" + "".join(f"{results[name]['c2st'][which]:12.3f}" for name in results))
    ratio = results["sbi"]["total"] / results["unle"]["total"]
    print(f"\nfit + draws: AUNLE takes {1 / ratio:.2f} times as long as NLE ({ratio:.2f} times as fast).")
    for name, result in results.items():
        print(f"{name}: {', '.join(f'{key} {value}' for key, value in result['versions'].items())}; {result['device']}")
    compiled = results["unle"]["compiled"]
    print(f"functions compiled for the second observation: {compiled}")
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(), "ratio": ratio, **results}, indent=2))
    return 1 if compiled else 0


def machine() -> str:
    """Return the processor's model, the cores at our disposal and how busy they are."""
    model = platform.processor() or platform.machine()
    if shutil.which("lscpu"):
        text = subprocess.run(["lscpu"], capture_output=True, text=True, check=False).stdout
        fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        model = fields.get("Model name", model).strip()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load = f", load {os.getloadavg()[0]:.1f} before the start" if hasattr(os, "getloadavg") else ""
    return f"machine: {model}, {cores} cores{load}"


if __name__ == "__main__":
    sys.exit(main())
