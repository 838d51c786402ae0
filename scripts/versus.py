"""What scripts that race `unle` against `sbi` have in common: options, fresh processes, clocks, scores and the table.

`sbi` needs an environment of its own:

    python -m venv sbi-env && sbi-env/bin/pip install torch==2.13.0 sbi==0.27.0

A script calls itself with `--child NAME` for what runs in a process of its own; arrays travel in .npz files, so neither
program needs to be able to import the other.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np


def options_of(description: str, *, simulations: int) -> argparse.ArgumentParser:
    """Return the options that every comparison has."""
    parser = argparse.ArgumentParser(
        description=description.split("\n\n")[0], epilog="Example: " + _example(description)
    )
    parser.add_argument("--sbi-python", default="sbi-env/bin/python", help="Python of an environment that has sbi")
    parser.add_argument("--simulations", type=int, default=simulations)
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser


def _example(description: str) -> str:
    return next(line.strip() for line in description.splitlines() if line.strip().startswith("python scripts/"))


class Clock:
    """Seconds of each stage since the one before, and processor seconds, which other programs hardly change."""

    def __init__(self):
        self.seconds: dict[str, float] = {}
        self.processor: dict[str, float] = {}
        self.last = time.perf_counter(), processor_seconds()

    def lap(self, stage: str) -> None:
        """Write down the time since the last lap."""
        now = time.perf_counter(), processor_seconds()
        self.seconds[stage], self.processor[stage] = (b - a for a, b in zip(self.last, now, strict=True))
        self.last = now


def processor_seconds() -> float:
    """Return what all threads of this process, and its children that have ended, have used of the processors."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def run_child(script: str, child: str, python: str, folder: Path, options: argparse.Namespace) -> dict:
    """Run one program in a new process and return what it wrote down."""
    same = ("simulations", "draws", "seed")
    arguments = [word for name in same for word in (f"--{name}", str(getattr(options, name)))]
    # A compilation cache on disk would hide what a first run costs.
    environment = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    command = [python, script, "--child", child, "--folder", str(folder), *arguments]
    try:
        subprocess.run(command, check=True, env=environment | {"UNLE_PROGRESS": "0", "UNLE_CACHE": "0"})
    except FileNotFoundError:
        sys.exit(f"there is no Python at {python}; see the beginning of {__file__} for how to make an environment.")
    except subprocess.CalledProcessError as error:
        sys.exit(f"{child} failed with exit status {error.returncode}; its message is above.")
    return json.loads((folder / f"{child}.json").read_text())


def write_child(folder: Path, child: str, record: dict, **draws: np.ndarray) -> None:
    """Leave a record, and draws by a name for each observation, for the parent."""
    record["versions"]["python"] = platform.python_version()
    np.savez(folder / f"{child}.npz", **draws)
    (folder / f"{child}.json").write_text(json.dumps(record))


def score(task: str, x_o: np.ndarray, draws: np.ndarray, *, seed: int) -> float:
    """Return the C2ST of draws against as many exact ones."""
    import unle
    from unle.diagnose import c2st_fast

    reference = unle.task(task).reference(x_o, len(draws), seed=seed)
    return c2st_fast(reference, draws)


def print_table(columns: Sequence[str], rows: dict[str, Sequence[float | None]], *, digits: int = 1) -> None:
    """Print one line per row; None is a dash."""
    width = max([12, *(len(name) + 2 for name in columns)])
    if columns:
        print(" " * 22 + "".join(f"{name:>{width}}" for name in columns))
    for name, values in rows.items():
        print(f"{name:22}" + "".join(f"{'-' if v is None else format(v, f'.{digits}f'):>{width}}" for v in values))


def print_versions(results: dict[str, dict]) -> None:
    """Print what was compared."""
    for name, result in results.items():
        print(f"{name}: {', '.join(f'{key} {value}' for key, value in result['versions'].items())}; {result['device']}")


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
