"""How the base of a tilted model comes about: fitted to the data, or fixed beforehand."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unle.models import AbstractBase, FixedMeasure
from unle.train.splits import Splits


class AbstractBaseTraining(eqx.Module):
    """Make one base per ensemble member."""

    @abc.abstractmethod
    def fit(
        self, key: PRNGKeyArray, t: Float[Array, "n dim"], w: Float[Array, "n data"], splits: Splits
    ) -> AbstractBase:
        """Return the members' bases, every array stacked along a leading axis.

        Args:
            key: randomness of the fit.
            t: standardised parameters.
            w: standardised data.
            splits: training and held-out rows of every member.
        """


class FixedBase(AbstractBaseTraining):
    """The wide Gaussian measure of the original AUNLE: the energy learns everything.

    Args:
        scale: standard deviation of the measure on standardised data.
    """

    scale: float = 10.0

    def fit(self, key, t, w, splits):
        """Return the same measure for every member."""
        return FixedMeasure(jnp.zeros(splits.train.shape[:1] + w.shape[1:]), jnp.full(len(splits.train), self.scale))
