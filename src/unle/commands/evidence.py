"""From a run directory to what its checks look at."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from unle.commands.inference import load_posterior
from unle.commands.model import Model, load_model
from unle.diagnose import Evidence
from unle.errors import InputError, StoreError
from unle.posterior import Draws
from unle.store import RunDirectory


def gather(
    run: RunDirectory, *, model: Model | None = None, simulations: int | None = None, seed: int | None = None
) -> Evidence:
    """Read a finished run.

    Args:
        run: the directory.
        model: with the simulator; None if it is not at hand.
        simulations: fresh simulations to make; see `Evidence`.
        seed: of the checks; that of the run by default.
    """
    posterior = load_posterior(run)
    draws = Draws.load(run.draws) if run.draws.exists() else None
    with run.simulations() as store:
        rows = store.read()
    simulator: Callable | None = None if model is None else model.simulator
    chosen = int(run.settings.get("seed", 0)) if seed is None else seed
    seconds = float(rows.seconds.mean()) if len(rows.seconds) else 0.0
    valid = rows.valid
    return Evidence(
        posterior,
        draws,
        rows.theta[valid],
        rows.x[valid],
        run.read_metrics(),
        simulator,
        seconds,
        simulations,
        chosen,
    )


def model_of(run: RunDirectory, text: str | None) -> Model | None:
    """Return the model of a run: the built-in task, or the file that the user names, if it is the same file still.

    Raises:
        InputError: the file is another one than the run was made with.
    """
    settings: dict[str, Any] = run.settings
    name, checksum = str(settings.get("model", "")), settings.get("model_sha256")
    if text is None and checksum is not None:
        recorded = settings.get("model_path")
        text = str(recorded) if recorded and Path(str(recorded)).is_file() else None
    if text is None and checksum is None and name:
        text = name
    if text is None:
        return None
    model = load_model(text)
    if model.checksum != checksum:
        raise InputError(
            f"expected the model that {run.path} was made with ({name}); {text} has changed or is another."
        )
    return model


def require_fit(path: Path) -> RunDirectory:
    """Open a run that has been fitted."""
    run = RunDirectory.open(path)
    if not any((run.path / "rounds").glob("[0-9]*/likelihood.json")):
        raise StoreError(
            f"{path} holds no fitted likelihood yet; finish the run first, or watch it: unle watch {path}."
        )
    return run


def as_floats(values: Any) -> np.ndarray:
    """Return stored numbers, in which JSON may have written inf as a word, as an array."""
    return np.vectorize(float, otypes=[float])(np.asarray(values, dtype=object))
