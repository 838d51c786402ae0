"""Methods: from simulations to a posterior, one file each."""

from unle.methods.aunle import AUNLE
from unle.methods.nle import NLE
from unle.methods.normalisers import AbstractNormaliser, ByExchange, Divi, Online, Tilted
from unle.methods.round_history import Round
from unle.methods.rounds import RoundState
from unle.methods.sequential import AbstractSequential, SequentialRun
from unle.methods.smnle import SMNLE
from unle.methods.snle import SNLE
from unle.methods.sunle import SUNLE

__all__ = [
    "AUNLE",
    "NLE",
    "SMNLE",
    "SNLE",
    "SUNLE",
    "AbstractNormaliser",
    "AbstractSequential",
    "ByExchange",
    "Divi",
    "Tilted",
    "Online",
    "Round",
    "RoundState",
    "SequentialRun",
]
