"""How the base of a tilted model comes about: fitted to the data, or fixed beforehand."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unle.models import AbstractBase, FixedMeasure
from unle.train.splits import Splits
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
