"""Between host and device, with little to compile.

`jax.numpy.asarray` compiles a small program for every new shape and type.  That is nothing once, but a fit begins with
dozens of them, which together take seconds, most on a GPU.  A program that runs once is ready sooner on the host.

A compiled program that was kept on disk is found again if its arguments come in the same order.  numpyro keeps the
names of a distribution's arrays in a set, whose order differs from process to process; `Ordered` sorts them.
"""

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key, PRNGKeyArray
from numpyro import distributions as dist


def on_device(values: Any, dtype: Any = np.float32) -> Array:
    """Return the values as a JAX array, converted on the host.

    Args:
        values: anything that NumPy takes, JAX arrays among them.
        dtype: of the result.

    Example:
        >>> from unle.space.host_device import on_device
        >>> on_device([1.0, 2.0]).dtype
        dtype('float32')
    """
    return jax.device_put(np.asarray(values, dtype))


def key_of(seed: int) -> PRNGKeyArray:
    """Return `jax.random.key(seed)`, made on the host.

    Example:
        >>> import jax.random as jr
        >>> from unle.space.host_device import key_of
        >>> bool(key_of(7) == jr.key(7))
        True
    """
    if jax.config.jax_default_prng_impl != "threefry2x32" or not 0 <= seed < 2**31:  # pyright: ignore[reportAttributeAccessIssue]
        return jr.key(seed)
    return jr.wrap_key_data(jax.device_put(np.array([0, seed], np.uint32)))


def split(key: PRNGKeyArray, n: int) -> tuple[PRNGKeyArray, ...]:
    """Return n independent keys, made on the host.

    Example:
        >>> import jax.random as jr
        >>> from unle.space.host_device import split
        >>> [key.shape for key in split(jr.key(0), 2)]
        [(), ()]
    """
    return tuple(map(jr.wrap_key_data, _words(key, n)))


def keys(key: PRNGKeyArray, *shape: int) -> Key[Array, "..."]:
    """Return an array of independent keys, made on the host: those of `split`, in order.

    Example:
        >>> import jax.random as jr
        >>> from unle.space.host_device import keys
        >>> keys(jr.key(0), 4, 2).shape
        (4, 2)
    """
    words = _words(key, math.prod(shape))
    return jr.wrap_key_data(jax.device_put(words.reshape(*shape, words.shape[1])))


def _words(key: PRNGKeyArray, n: int) -> np.ndarray:
    # A program of the device that splits keys takes a quarter of a second to compile, for every number of them.
    data = np.asarray(jr.key_data(key))
    return np.random.SeedSequence(data.tolist()).generate_state(n * data.size).reshape(n, data.size)


def on_host() -> AbstractContextManager[Any]:
    """Run the programs of the block on the host, for work that is done once per fit; their results are left there."""
    try:
        host = jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # JAX was told to leave the host alone
        return nullcontext()
    return jax.default_device(host)


@jax.tree_util.register_pytree_node_class
class Ordered:
    """A distribution, as a tree whose leaves are sorted by name."""

    def __init__(self, distribution: dist.Distribution):
        self.distribution = distribution

    def tree_flatten(self) -> tuple[tuple[dict[str, Any]], tuple[Any, ...]]:
        """Return the fields with arrays, a dictionary, and what else the distribution is made of."""
        kind = type(self.distribution)
        values, others = self.distribution.tree_flatten()
        fields = dict(zip(kind.gather_pytree_data_fields(), values, strict=True))
        return (_map_nodes(Ordered, dist.Distribution, fields),), (kind, others)

    @classmethod
    def tree_unflatten(cls, static: tuple[Any, ...], children: tuple[dict[str, Any]]) -> "Ordered":
        """Build the distribution again."""
        kind, others = static
        fields = _map_nodes(lambda node: node.distribution, Ordered, children[0])
        values = tuple(fields[name] for name in kind.gather_pytree_data_fields())
        return cls(kind.tree_unflatten(others, values))


def _map_nodes(function: Any, kind: type, tree: Any) -> Any:
    """Apply a function to the nodes of one class, and leave the rest of the tree as it is."""
    is_node = lambda node: isinstance(node, kind)  # noqa: E731
    return jax.tree.map(lambda node: function(node) if is_node(node) else node, tree, is_leaf=is_node)
