"""How the base of a tilted model comes about: a fixed measure, a fitted flow, or conditional Gaussians, the default.

Conditional Gaussians are in `unle.train.gaussian_training`.
"""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import PRNGKeyArray

from unle.models import AbstractBase, AbstractFlow, FixedMeasure, Flow, Maf
from unle.train.loop import Descended, Descent, descend
from unle.train.rows import Rows


class AbstractBaseTraining(eqx.Module):
    """Make one base per ensemble member."""

    @abc.abstractmethod
    def fit(self, key: PRNGKeyArray, rows: Rows, *, capacity: int | None = None) -> AbstractBase:
        """Return the members' bases, every array stacked along a leading axis.

        Args:
            key: randomness of the fit.
            rows: standardised simulations.
            capacity: rows that there will be in the end, when more are to come: fits up to there compile once.
        """

    def untrained(self, dim_theta: int, dim_data: int, *, members: int) -> AbstractBase | None:
        """Return bases with the structure and the shapes that `fit` will most likely return; None if that is open.

        What comes after the fit can then be compiled while it runs.
        """
        return None

    def work_per_row(self, dim: int) -> int:
        """Return how many numbers in double precision the fit needs per row of `dim` parameters, besides the row."""
        return 0


class FixedBase(AbstractBaseTraining):
    """The wide Gaussian measure of the original AUNLE: the energy learns everything.

    Args:
        scale: standard deviation of the measure on standardised data.
    """

    scale: float = 10.0

    def fit(self, key, rows, *, capacity=None):
        one = FixedMeasure(jnp.zeros(rows.w.shape[1]), jnp.asarray(self.scale, rows.w.dtype))
        return jax.tree.map(lambda leaf: jnp.stack([leaf] * rows.members), one)


class FlowTraining(AbstractBaseTraining):
    """Fit a flow per ensemble member, each on its own split.

    Args:
        flow: its design, `Maf()` or `SplineFlow()`.
        descent: how it is trained.
    """

    flow: AbstractFlow = Maf()
    descent: Descent = Descent()

    def fit(self, key, rows, *, capacity=None):
        return self.fit_flows(key, rows.padded(capacity))[0]

    def fit_flows(
        self, key: PRNGKeyArray, rows: Rows, *, on_chunk: Callable[[dict[str, Any]], None] | None = None
    ) -> tuple[Flow, Descended]:
        """Return the members' flows, stacked, and how training went."""
        key_start, key_descent = jr.split(key)
        flows = _initial(jr.split(key_start, rows.members), self.flow, rows.t.shape[1], rows.w.shape[1])
        arrays, static = eqx.partition(flows, eqx.is_array)
        loss, title = negative_log_likelihood, "Fitting the flow"
        end = descend(key_descent, loss, arrays, static, rows, settings=self.descent, title=title, on_chunk=on_chunk)
        return eqx.combine(end.trained, static), end


@eqx.filter_jit
def _initial(keys, design: AbstractFlow, dim_theta: int, dim_data: int) -> Flow:
    return eqx.filter_vmap(lambda key: design.initial(key, dim_theta, dim_data))(keys)


def negative_log_likelihood(key, trained, fixed, t, w):
    """Return -mean log q(w | t); nothing about it is random."""
    flow = eqx.combine(trained, fixed)
    return -jnp.mean(jax.vmap(flow.log_density)(t, w))
