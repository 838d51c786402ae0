"""Training and held-out rows of each member of an ensemble."""

from typing import NamedTuple

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

MOST_HELD_OUT = 2000  # rows per member: a mean over as many is precise, and validation stays cheap


class Splits(NamedTuple):
    """Rows that each ensemble member trains on, and rows held out from it."""

    train: Int[Array, "member train"]
    held_out: Int[Array, "member held_out"]


def make_splits(key: PRNGKeyArray, n: int, *, members: int, fraction: float = 0.1) -> Splits:
    """Deal n rows into held-out parts, disjoint between members as far as the data allow.

    Disjoint parts make the mean held-out score of the ensemble an average over as many rows as possible.
    """
    held = max(1, min(round(n * fraction), MOST_HELD_OUT))
    order = np.asarray(jr.permutation(key, n))
    held_out = np.stack([np.take(order, np.arange(k * held, (k + 1) * held), mode="wrap") for k in range(members)])
    train = np.stack([np.setdiff1d(order, rows) for rows in held_out])
    return Splits(jnp.asarray(train), jnp.asarray(held_out))
