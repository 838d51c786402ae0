"""What lasts: simulations (SQLite), fitted models (arrays and JSON), the run directory.

Nothing in this room ever unpickles. Model files are written and read by `unle.store.modules`, which is not
imported here: it needs jax, and code that runs in simulator workers must not.
"""

from unle.store.json_files import plain, sha256_of, versions, write_atomically
from unle.store.lock import locked
from unle.store.reading import StoredRows
from unle.store.run_directory import RunDirectory
from unle.store.simulations import SimulationStore

__all__ = [
    "RunDirectory",
    "SimulationStore",
    "StoredRows",
    "locked",
    "plain",
    "sha256_of",
    "versions",
    "write_atomically",
]
