"""Methods: from simulations to a posterior.

In come simulations (or a simulator), a prior and settings; out comes a `Posterior`, or a `SequentialRun` that has one.

Read `aunle` first, with `training_pairs` (standardised data), `energy_selection` (which energies are trained, and which
kept).  Then `sequential` (the loop over rounds), `round_state`, `rounds`, with `region_fit` (what a
round fits), `proposals` (where it simulates next), `neighbourhood` and `round_history` (is x_o lost?).  Then `sunle`,
with `normalisers`.  `nle`, `snle` and `smnle` are baselines, `paper_*` the algorithms of the paper, and
`simulation_inputs`, `summarised` (long data), `memory_limit`, `precompile` and `abstract_method` helpers.
"""

from unle.methods.abstract_method import AbstractMethod
from unle.methods.aunle import AUNLE
from unle.methods.nle import NLE
from unle.methods.normalisers import AbstractNormaliser, ByExchange, Divi, Online, Tilted
from unle.methods.paper_sunle import PaperCarried
from unle.methods.round_history import Round
from unle.methods.rounds import RoundState
from unle.methods.sequential import AbstractSequential, SequentialRun
from unle.methods.simulation_inputs import as_simulations
from unle.methods.smnle import SMNLE
from unle.methods.snle import SNLE
from unle.methods.summarised import summarise_simulations
from unle.methods.sunle import SUNLE
from unle.methods.training_pairs import standardised_pairs

__all__ = [
    "AUNLE",
    "NLE",
    "SMNLE",
    "SNLE",
    "SUNLE",
    "AbstractMethod",
    "AbstractNormaliser",
    "AbstractSequential",
    "ByExchange",
    "Divi",
    "Tilted",
    "Online",
    "PaperCarried",
    "Round",
    "RoundState",
    "SequentialRun",
    "as_simulations",
    "standardised_pairs",
    "summarise_simulations",
]
