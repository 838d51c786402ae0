"""Host arrays on the device, with nothing to compile.

`jax.numpy.asarray` compiles a small program for every new shape and type.  That is nothing once, but a fit begins with
dozens of them, which together take seconds, most on a GPU.
"""

from typing import Any

import jax
import numpy as np
from jaxtyping import Array


def on_device(values: Any, dtype: Any = np.float32) -> Array:
    """Return the values as a JAX array, converted on the host.

    Args:
        values: anything that NumPy takes, JAX arrays among them.
        dtype: of the result.

    Example:
        >>> from unle.space.transfer import on_device
        >>> on_device([1.0, 2.0]).dtype
        dtype('float32')
    """
    return jax.device_put(np.asarray(values, dtype))
