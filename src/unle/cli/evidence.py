"""From a run directory to what its checks look at."""

from collections.abc import Callable
from pathlib import Path

from unle.cli.baselines import SEQUENTIAL
from unle.cli.inference import load_posterior
from unle.cli.model import Model, built_in_tasks, load_model
from unle.cli.whereabouts import recall
from unle.diagnose import Evidence
from unle.errors import InputError, StoreError
from unle.posterior import Draws
from unle.store import RunDirectory, sha256_of


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
    with run.simulations(read_only=True) as store:
        rows, tally = store.sample(), store.tally()
    simulator: Callable | None = None if model is None else model.simulator
    chosen = int(run.settings.get("seed", 0)) if seed is None else seed
    seconds = tally.seconds / max(tally.count, 1)
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
        amortised=run.settings.get("method") not in SEQUENTIAL,
    )


def model_of(run: RunDirectory, text: str | None) -> Model | None:
    """Return the model of a run: the built-in task, or the file that the user names, if it is the same file still.

    Raises:
        InputError: the file is another one than the run was made with.
    """
    name, checksum = str(run.settings.get("model", "")), run.settings.get("model_sha256")
    if checksum is None:
        return load_model(name) if name in built_in_tasks() else None
    path = recall(run.path) if text is None else Path(text)
    if path is None or (text is None and not path.is_file()):
        return None
    if not path.is_file() or sha256_of(path) != checksum:  # before anything in it is run
        raise InputError(f"expected the model that {run.path} was made with ({name}); {path} is gone or has changed.")
    return load_model(str(path))


def require_fit(path: Path) -> RunDirectory:
    """Open a run that has been fitted."""
    run = RunDirectory.open(path)
    if not any((run.path / "rounds").glob("[0-9]*/likelihood.json")):
        raise StoreError(
            f"{path} holds no fitted likelihood yet; finish the run first, or watch it: unle watch {path}."
        )
    return run
