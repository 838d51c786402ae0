r"""Both residuals of a base for an energy to see: those of its linear part, and those of all of it.

    r = P (w - b - A' t)   next to it shapes that stay where they are in the data are simple,
    v = T(t) (r - m(t))    next to it shapes that move and scale with the simulator are.

An energy that sees r alone has to learn from the data where the base has moved to; one that sees v alone, to undo its
wiggles.  With both it takes what it needs.
"""

import equinox as eqx
import jax
import jax.numpy as jnp

from unle.models.bases import AbstractBase


class TwoViews(AbstractBase):
    """A base whose features are its own and, after them, its coordinates v.

    Args:
        base: the density.
    """

    base: AbstractBase

    def whiten_with_log_det(self, t, w):
        """Return v and log |det dv/dw|."""
        return self.base.whiten_with_log_det(t, w)

    def unwhiten(self, t, v):
        """Return w at v."""
        return self.base.unwhiten(t, v)

    def log_density_whitened(self, v):
        """Return the log-density of v."""
        return self.base.log_density_whitened(v)

    def draws_whitened(self, key, n):
        """Draw n of v."""
        return self.base.draws_whitened(key, n)

    def features(self, t, w):
        """Return r and v."""
        return self.log_density_and_features(t, w)[1]

    def log_density_and_features(self, t, w):
        """Return both from one v: its gradient goes through the base once."""
        v, log_det = self.base.whiten_with_log_det(t, w)
        return self.log_density_whitened(v) + log_det, jnp.concatenate([self.base.features(t, w), v])

    def features_whitened(self, t, v):
        """Return r at v, and v."""
        return jnp.concatenate([self.base.features_whitened(t, v), v])


def in_two_views(base: AbstractBase) -> AbstractBase:
    """Return the base with both views of w, or as it is if they are the same."""
    return base if base.sees_whitened() else TwoViews(base)


def length_seen(bases: AbstractBase, dim_theta: int, dim_data: int) -> int:
    """Return how many numbers an energy on top of stacked bases sees of w."""

    def of_members(bases, t, w):
        return eqx.filter_vmap(lambda base: base.features(t, w))(bases)

    t, w = (jax.ShapeDtypeStruct((dim,), jnp.float32) for dim in (dim_theta, dim_data))
    return eqx.filter_eval_shape(of_members, bases, t, w).shape[-1]
