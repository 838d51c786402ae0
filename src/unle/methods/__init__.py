"""Methods: from simulations to a posterior.

In come simulations (or a simulator), a prior and settings; out comes a `Posterior`, or a `SequentialRun` that has one.

Read `aunle` first, with `training_pairs` (standardised data), `energy_selection` (which energies are trained, and which
kept).  Then `abstract_method` (the loop over rounds), `round_state` (is x_o lost?) and `rounds`, with `region_fit`
(what a round fits) and `proposals` (where it simulates next).  Then `sunle`, with `normalisers`.  `nle` and `smnle`
are baselines, `paper` has the algorithms of the paper; `summarised` deals with long data.
"""

from unle.methods.abstract_method import AbstractMethod, AbstractSequential, SequentialRun
from unle.methods.aunle import AUNLE
from unle.methods.nle import NLE, SNLE
from unle.methods.normalisers import AbstractNormaliser, ByExchange, Divi, Online, Tilted
from unle.methods.paper import PaperCarried
from unle.methods.round_state import Round
from unle.methods.rounds import RoundState
from unle.methods.smnle import SMNLE
from unle.methods.summarised import summarise_simulations
from unle.methods.sunle import SUNLE
from unle.methods.training_pairs import as_simulations, standardised_pairs

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
