"""What lasts: simulations (SQLite), fitted models (arrays and JSON), the run directory. Nothing is ever unpickled.

Simulations, models and settings come in; files that survive a kill at any moment, and arrays read from them, go out.
Read in this order: `run_directory` (the files of a run) and `safe_files` (how they are written); `simulation_store`
(the table of simulations) with `database` and `reading`; `model_files` and
`storable_classes` (fitted models); `table_files` (files for other programs).

`unle.store.model_files` is not imported here: it needs jax, which simulator workers must not import.
"""

from unle.store.database import wrong_length
from unle.store.reading import Reservoir, Span, StoredRows, row_hashes
from unle.store.run_directory import METRICS, RunDirectory
from unle.store.safe_files import (
    held,
    last_held_here,
    last_holder,
    locked,
    plain,
    read_json,
    read_sealed,
    sha256_of,
    this_machine,
    versions,
    write_atomically,
    write_json,
    write_sealed,
)
from unle.store.simulation_store import RoundCount, SimulationStore, Tally, peek_simulations, read_counts
from unle.store.table_files import Table, read_table, write_table

__all__ = [
    "METRICS",
    "Reservoir",
    "RoundCount",
    "RunDirectory",
    "SimulationStore",
    "Span",
    "StoredRows",
    "Table",
    "Tally",
    "held",
    "last_held_here",
    "last_holder",
    "locked",
    "peek_simulations",
    "plain",
    "read_counts",
    "read_json",
    "read_sealed",
    "read_table",
    "row_hashes",
    "sha256_of",
    "this_machine",
    "versions",
    "write_atomically",
    "write_json",
    "write_sealed",
    "write_table",
    "wrong_length",
]
