"""Between host and device, with little to compile.

`jax.numpy.asarray` compiles a small program for every new shape and type.  That is nothing once, but a fit begins with
dozens of them, which together take seconds, most on a GPU.  A program that runs once is ready sooner on the host.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, PRNGKeyArray


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


def split(key: PRNGKeyArray, n: int) -> tuple[PRNGKeyArray, ...]:
    """Split a key into at most eight, as `jax.random.split` does, by one program for all n.

    Example:
        >>> import jax.random as jr
        >>> from unle.space.transfer import split
        >>> bool((split(jr.key(0), 2)[1] == jr.split(jr.key(0), 2)[1]).all())
        True
    """
    return _eight(key)[:n]


@jax.jit
def _eight(key: PRNGKeyArray) -> tuple[PRNGKeyArray, ...]:
    return tuple(jr.split(key, 8))


def on_host() -> AbstractContextManager[Any]:
    """Run the programs of the block on the host, for work that is done once per fit; their results are left there."""
    try:
        host = jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # JAX was told to leave the host alone
        return nullcontext()
    return jax.default_device(host)
