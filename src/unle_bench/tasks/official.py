"""Read the public benchmark's observations and reference draws, where they are installed.

The `sbibm` package ships, for every task, ten observations, the parameters behind them and 10 000 reference
draws of each posterior as text files.  `pip install --no-deps sbibm` is enough: the folder is located without
importing the package, whose dependencies are heavy, and only the text files are read.
"""

import bz2
import importlib.util
import io
from pathlib import Path

import numpy as np
from jaxtyping import Float

from unle.errors import StoreError

N_OBSERVATIONS = 10
# Tasks that differ from another one only in x: they have no folder of their own, and share its posteriors.
SHARED = {
    "slcp_distractors": ("slcp", "observation_distractors.csv"),
    "bernoulli_glm_raw": ("bernoulli_glm", "observation_raw.csv"),
}


def official_folder(task: str) -> Path | None:
    """Return the folder with the official files of a task, or None where they are not installed."""
    spec = importlib.util.find_spec("sbibm")
    for root in (spec.submodule_search_locations or []) if spec is not None else []:
        home, observation = SHARED.get(task, (task, "observation.csv"))
        folder = Path(root) / "tasks" / home / "files"
        if (folder / "num_observation_1" / observation).is_file():
            return folder
    return None


def official_observation(folder: Path, i: int, task: str) -> Float[np.ndarray, " dim_x"]:
    """Return the i-th observation x_o of a task, i = 1 ... 10."""
    _, name = SHARED.get(task, (task, "observation.csv"))
    return _table(folder / f"num_observation_{i}" / name)[0]


def official_parameters(folder: Path, i: int) -> Float[np.ndarray, " dim"]:
    """Return the parameters that generated the i-th observation."""
    return _table(folder / f"num_observation_{i}" / "true_parameters.csv")[0]


def official_reference(folder: Path, i: int) -> Float[np.ndarray, "n dim"]:
    """Return the 10 000 reference draws of the i-th posterior."""
    return _table(folder / f"num_observation_{i}" / "reference_posterior_samples.csv.bz2")


def _table(path: Path) -> Float[np.ndarray, "rows columns"]:
    """Read a text file of numbers below one line of column names, which differ by task."""
    try:
        content = path.read_bytes()
        content = bz2.decompress(content) if path.suffix == ".bz2" else content
        return np.loadtxt(io.BytesIO(content), delimiter=",", skiprows=1, ndmin=2, dtype=np.float32)
    except (OSError, ValueError) as error:
        raise StoreError(
            f"expected a table of numbers in {path}; got {error}; try reinstalling the benchmark data"
            " with `pip install --no-deps --force-reinstall sbibm`."
        ) from error
