"""Count the files of the library whose functions run in one fit and one sample, by AUNLE and by SUNLE.

    python scripts/files_of_a_fit.py

Imports do not count, nor does what only compiles ahead in another thread: a reader who follows a fit from its first
line to the draws has these files to open.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

import unle
from unle import AUNLE, SUNLE

SOURCE = Path(unle.__file__).parent
PRIOR = unle.Prior.uniform(low=[-1.0], high=[1.0])


@unle.batched
def simulator(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A curve with noise that is not Gaussian, so that energies are trained and kept."""
    return theta + 0.3 * theta**2 + 0.2 * rng.choice([-1.0, 1.0], theta.shape) + 0.05 * rng.normal(size=theta.shape)


SIMULATIONS = unle.simulate(simulator, PRIOR, 500, seed=0)


def import_everything() -> None:
    """Import all rooms beforehand: what runs while a class is defined is no part of a fit."""
    for room in sorted(set(dir(unle)) - set(unle.__all__)):
        getattr(unle, room)


def files_called(body: Callable[[], object]) -> list[str]:
    """Return the files of the library in which a function was called while the body ran."""
    files = set()

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_name != "<module>":
            files.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        body()
    finally:
        sys.setprofile(None)
    inside = (Path(file) for file in files if file.startswith(str(SOURCE)))
    return sorted(str(file.relative_to(SOURCE)) for file in inside)


def amortised() -> None:
    """Fit and draw."""
    posterior = AUNLE(PRIOR).fit(SIMULATIONS, seed=1)
    posterior.sample([0.2], 1000, seed=2)


def sequential() -> None:
    """Fit in rounds, and draw."""
    run = SUNLE(PRIOR, simulator).run([0.2], budget=500, rounds=2, seed=1)
    run.posterior.sample([0.2], 1000, seed=2)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    import_everything()
    for name, body in (("AUNLE", amortised), ("SUNLE", sequential)):
        files = files_called(body)
        print(f"{name}: {len(files)} files")
        print("  " + "\n  ".join(files))
