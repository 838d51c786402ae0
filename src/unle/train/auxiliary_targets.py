r"""Auxiliary targets: what a simulation left behind, valid or not, as targets beside the one that counts.

A simulation often fails in part: a cell that never fired has no phase, but a period all the same.  For every entry of
x a network has two more outputs, the logit a_j of its being finite and its value b_j, with the loss

    C mean_j CE(a_j, finite_j) + mean_j finite_j huber(b_j - z_j),

z_j the value in robust units.  These outputs are discarded; learning them shapes the layers below, which the
probability of a valid simulation shares.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float

MOST_ENTRIES = 20  # of x that are taken; evenly spaced where there are more
LARGEST_VALUE = 4.0  # robust units at which values are cut off
FINITE_WEIGHT = 5.0  # C: failures are what the network is to learn about


class AuxiliaryTargets(NamedTuple):
    """Targets beside the validity of each simulation.

    Attributes:
        finite: which entries of x are.
        values: in robust units; 0 where they are not finite.
    """

    finite: Bool[np.ndarray, "n entries"] | Bool[Array, "n entries"]
    values: Float[np.ndarray, "n entries"] | Float[Array, "n entries"]

    @classmethod
    def of(cls, x: Float[np.ndarray, "n dim_x"]) -> "AuxiliaryTargets":
        """Return the targets that data give, with NaN or infinities where there are none."""
        columns = np.unique(np.linspace(0, x.shape[1] - 1, MOST_ENTRIES).round().astype(int)) if x.shape[1] else []
        x = x[:, columns]
        finite = np.isfinite(x)
        values = np.zeros(x.shape, np.float32)
        for j in range(x.shape[1]):
            column = x[finite[:, j], j]
            if len(column):
                low, middle, high = np.quantile(column, [0.16, 0.5, 0.84])
                unit = 0.5 * (high - low)
                scaled = (column - middle) / unit if unit > 0 else np.zeros_like(column)
                values[finite[:, j], j] = np.clip(scaled, -LARGEST_VALUE, LARGEST_VALUE)
        return cls(finite, values)

    @property
    def outputs(self) -> int:
        """How many outputs they ask of a network."""
        return 2 * self.values.shape[1]

    def loss(self, outputs: Float[Array, "n outputs"]) -> Float[Array, ""]:
        """Return the loss of outputs on the targets of the same rows."""
        entries = self.values.shape[1]
        if entries == 0:
            return jnp.zeros(())
        entropy = optax.sigmoid_binary_cross_entropy(outputs[:, :entries], self.finite.astype(outputs.dtype))
        errors = jnp.where(self.finite, optax.huber_loss(outputs[:, entries:], self.values), 0.0)
        return FINITE_WEIGHT * jnp.mean(entropy) + jnp.mean(errors)
