"""Methods of another library: `sbi`, in a Python environment of its own.

A child process is started with that environment's Python and the script `sbi_peer.py`; it imports nothing of ours.
They exchange arrays as .npy files in a temporary folder, and lines on its standard input and output: the child says
its "versions", "simulate" when it wants x for its theta (rounds of a sequential method), "round" when one has been
fitted, and "done" with its times when it has drawn.
"""

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np

from unle.errors import InputError
from unle_bench.methods.method_adapter import SIMULATION_SEED, AbstractMethodAdapter, Outcome

ENVIRONMENT_VARIABLE = "UNLE_SBI_PYTHON"  # set by `unle bench --sbi-python`; worker processes inherit it
FINDS_SBI = "import importlib.util, sys; sys.exit(importlib.util.find_spec('sbi') is None)"


@dataclass(frozen=True)
class Peer(AbstractMethodAdapter):
    """A method of sbi with its default settings.

    Args:
        method: "nle" or "npe".
        rounds: one is amortised; more simulate around each observation.
        limit: seconds after which it is stopped; its observations have failed then.
        on_round: called with the number of each round, from 1, and the seconds since the first one began.
    """

    method: str
    rounds: int = 1
    limit: float | None = None
    on_round: Callable[[int, float], None] | None = None

    @property
    def sequential(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether it has rounds."""
        return self.rounds > 1

    def check(self):
        """See that there is an environment and that it has sbi, without importing it, which takes seconds."""
        python = _python()
        try:
            found = subprocess.run([python, "-c", FINDS_SBI], capture_output=True, timeout=60, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InputError(f"{python} could not be run: {error}.") from error
        if found.returncode:
            raise InputError(f"{python} has no sbi; try `{python} -m pip install sbi`.")

    def infer(self, task, *, budget, seed, observations, draws):
        """Run the child and answer its requests for simulations."""
        python = _python()
        outcome = Outcome()
        outcome.notes["rounds"] = []
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            np.save(folder / "observations.npy", np.stack(list(observations.values())))
            wanted = {"method": self.method, "rounds": self.rounds, "budget": budget, "seed": seed, "draws": draws}
            (folder / "wanted.json").write_text(json.dumps(wanted | {"prior": task.prior.spec()["blocks"]}))
            script = resources.files("unle_bench.methods").joinpath("sbi_peer.py")
            with resources.as_file(script) as path, open(folder / "errors.txt", "w+", encoding="utf-8") as errors:
                child = subprocess.Popen(
                    [python, str(path), str(folder)],
                    cwd=folder,  # sbi writes logs where it runs
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                )
                late = threading.Event()
                clock = threading.Timer(self.limit or threading.TIMEOUT_MAX, lambda: (late.set(), child.kill()))
                clock.start()
                try:
                    self._serve(child, task, folder, seed, outcome)
                finally:
                    clock.cancel()
                    child.kill()
                    child.wait()
                if late.is_set():
                    return self._stopped(outcome, observations)
                if not (folder / "draws.npy").exists():
                    errors.seek(0)
                    last = ([line for line in errors.read().splitlines() if line.strip()] or ["no message"])[-1]
                    raise InputError(f"sbi ended without draws: {last}")
            found = np.load(folder / "draws.npy", allow_pickle=False)
        outcome.draws = dict(zip(observations, found, strict=True))
        return outcome

    def _serve(self, child: subprocess.Popen, task, folder: Path, seed: int, outcome: Outcome) -> None:
        """Simulate on demand until the child is done; its times count without ours."""
        assert child.stdin is not None
        assert child.stdout is not None
        asked = 0
        for line in child.stdout:
            word, _, rest = line.strip().partition(" ")
            if word == "simulate":
                start = time.perf_counter()
                theta = np.load(folder / "theta.npy", allow_pickle=False)
                np.save(folder / "x.npy", task.simulate(theta, seed + SIMULATION_SEED + asked))
                asked += 1
                outcome.seconds["simulate"] = outcome.seconds.get("simulate", 0.0) + time.perf_counter() - start
                with contextlib.suppress(BrokenPipeError):  # it was stopped meanwhile
                    child.stdin.write("ready\n")
                    child.stdin.flush()
            elif word == "round":
                number, seconds = rest.split()
                outcome.notes["rounds"].append(float(seconds))
                if self.on_round is not None:
                    self.on_round(int(number), float(seconds))
            elif word == "versions":
                outcome.notes["versions"] = json.loads(rest)
            elif word == "done":
                outcome.seconds |= json.loads(rest)
                return

    def _stopped(self, outcome: Outcome, observations) -> Outcome:
        """Return how far it came."""
        begun = min(len(outcome.notes["rounds"]) + 1, self.rounds)
        reason = f"stopped after {self.limit:g} seconds, at round {begun} of {self.rounds}"
        outcome.reasons = dict.fromkeys(observations, reason)
        return outcome


def _python() -> str:
    """Return the path of the other environment's Python."""
    python = os.environ.get(ENVIRONMENT_VARIABLE)
    if not python:
        raise InputError("expected the Python of an environment with sbi; try `unle bench --sbi-python PATH`.")
    return str(Path(shutil.which(python) or python).absolute())
