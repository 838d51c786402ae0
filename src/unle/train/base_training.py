"""How the base of a tilted model comes about: a fitted flow, or a measure that is fixed beforehand.

Conditional Gaussians, the default, are in `unle.train.gaussian_base`.
"""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from unle.models import AbstractBase, AbstractFlow, FixedMeasure, Flow, Maf
from unle.train.descent import Descended, Descent, descend
from unle.train.splits import Splits, pad
from unle.train.stream import Stream


class AbstractBaseTraining(eqx.Module):
    """Make one base per ensemble member."""

    @abc.abstractmethod
    def fit(
        self,
        key: PRNGKeyArray,
        t: Float[Array, "n dim"],
        w: Float[Array, "n data"],
        splits: Splits,
        *,
        capacity: int | None = None,
        stream: Stream | None = None,
    ) -> AbstractBase:
        """Return the members' bases, every array stacked along a leading axis.

        Args:
            key: randomness of the fit.
            t: standardised parameters.
            w: standardised data.
            splits: training and held-out rows of every member.
            capacity: rows that there will be in the end, when more are to come: fits up to there compile once.
            stream: where other training rows come from, if t and w are a window on more data than fit in memory.
        """

    def untrained(self, dim_theta: int, dim_data: int, *, members: int) -> AbstractBase | None:
        """Return bases with the structure and the shapes that `fit` will most likely return; None if that is open.

        What comes after the fit can then be compiled while it runs.

        Args:
            dim_theta: number of parameters.
            dim_data: length of w.
            members: size of the ensemble.
        """
        return None

    def work_per_row(self, dim: int) -> int:
        """Return how many numbers in double precision the fit needs per row, besides the rows; none for most.

        Args:
            dim: number of parameters.
        """
        return 0


class FixedBase(AbstractBaseTraining):
    """The wide Gaussian measure of the original AUNLE: the energy learns everything.

    Args:
        scale: standard deviation of the measure on standardised data.
    """

    scale: float = 10.0

    def fit(self, key, t, w, splits, *, capacity=None, stream=None):
        """Return the same measure for every member."""
        one = FixedMeasure(jnp.zeros(w.shape[1]), jnp.asarray(self.scale, w.dtype))
        return jax.tree.map(lambda leaf: jnp.stack([leaf] * splits.train.shape[0]), one)


class FlowTraining(AbstractBaseTraining):
    """Fit a flow per ensemble member, each on its own split.

    Args:
        flow: its design, `Maf()` or `SplineFlow()`.
        descent: how it is trained.
    """

    flow: AbstractFlow = Maf()
    descent: Descent = Descent()

    def fit(self, key, t, w, splits, *, capacity=None, stream=None):
        """Return the members' flows, stacked."""
        return self.fit_flows(key, t, w, splits, capacity=capacity, stream=stream)[0]

    def fit_flows(
        self,
        key,
        t,
        w,
        splits,
        *,
        capacity: int | None = None,
        on_chunk: Callable[[dict[str, Any]], None] | None = None,
        stream: Stream | None = None,
    ) -> tuple[Flow, Descended]:
        """Return the members' flows, stacked, and how training went; arguments as those of `fit`."""
        key_start, key_descent = jr.split(key)
        flows = _initial(jr.split(key_start, splits.train.shape[0]), self.flow, t.shape[1], w.shape[1])
        t, w, splits = pad(t, w, splits, capacity)
        arrays, static = eqx.partition(flows, eqx.is_array)
        outcome = descend(
            key_descent,
            negative_log_likelihood,
            arrays,
            static,
            t,
            w,
            splits,
            settings=self.descent,
            title="Fitting the flow",
            on_chunk=on_chunk,
            stream=stream,
        )
        return eqx.combine(outcome.trained, static), outcome


@eqx.filter_jit
def _initial(keys, design: AbstractFlow, dim_theta: int, dim_data: int) -> Flow:
    return eqx.filter_vmap(lambda key: design.initial(key, dim_theta, dim_data))(keys)


def negative_log_likelihood(key, trained, fixed, t, w):
    """Return -mean log q(w | t); nothing about it is random."""
    flow = eqx.combine(trained, fixed)
    return -jnp.mean(jax.vmap(flow.log_density)(t, w))
