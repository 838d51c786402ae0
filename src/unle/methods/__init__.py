"""Methods: from simulations to a posterior, one file each."""

from unle.methods.aunle import AUNLE

__all__ = ["AUNLE"]
