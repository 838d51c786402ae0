r"""Chains over all devices of this machine.

Chains and particles are independent while they move, so they can move on several accelerators at once. JAX
divides a compiled program by itself, once the layout of one array in it is given: `over_devices` gives it. Gradients
and resampling need all particles, and communicate between devices; random numbers do not depend on the layout. Sums are
taken in another order than on one device, so that results agree up to rounding.

With one device `over_devices` does nothing at all.
"""

import math
from typing import TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

AXES = ("chains", "particles")

Tree = TypeVar("Tree")


def over_devices(tree: Tree, *, axes: int = 1) -> Tree:
    """Lay arrays out over all local devices, by one or two leading axes; meant for use inside `jax.jit`.

    An axis is divided into as many equal parts as it can be among the devices: 1000 chains on 4 devices into 4; 4
    islands of 500 particles on 8 devices into 4, and each island into 2.  Where devices are left over, they repeat the
    same computation.  Nothing happens where there is one device, or where the user has chosen one
    (`jax.default_device`).
    """
    devices = jax.local_devices()
    chosen = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]  # made at run time
    if len(devices) == 1 or chosen is not None:
        return tree

    def one(leaf):
        if not isinstance(leaf, jax.Array) or leaf.ndim < axes:
            return leaf
        parts, left = [], len(devices)
        for size in leaf.shape[:axes]:
            parts.append(math.gcd(size, left))
            left //= parts[-1]
        mesh = Mesh(np.array(devices).reshape(*parts, left), (*AXES[:axes], "idle"))
        return jax.lax.with_sharding_constraint(leaf, NamedSharding(mesh, PartitionSpec(*AXES[:axes])))

    return jax.tree.map(one, tree)
