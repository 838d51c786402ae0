"""Is the answer right?  Scores against a known posterior and checks that need none."""

from unle.diagnose.c2st import c2st, c2st_fast, c2st_fast_batch
from unle.diagnose.z_uniformity import ZUniformity, z_uniformity

__all__ = ["ZUniformity", "c2st", "c2st_fast", "c2st_fast_batch", "z_uniformity"]
