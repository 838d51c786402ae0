"""Methods: from simulations to a posterior, one file each."""

from unle.methods.aunle import AUNLE
from unle.methods.normalising import AbstractNormalising, ByExchange, Divi, Online, Tilted
from unle.methods.rounds import Round, Rounds
from unle.methods.sunle import SUNLE, SequentialRun

__all__ = [
    "AUNLE",
    "SUNLE",
    "AbstractNormalising",
    "ByExchange",
    "Divi",
    "Tilted",
    "Online",
    "Round",
    "Rounds",
    "SequentialRun",
]
