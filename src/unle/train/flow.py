"""Fit normalising flows by conditional maximum likelihood: the training of NLE."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr

from unle.models import AbstractFlow, Flow, Maf
from unle.train.base_training import AbstractBaseTraining
from unle.train.descent import Descended, Descent, descend
from unle.train.splits import pad
from unle.train.stream import Stream


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
