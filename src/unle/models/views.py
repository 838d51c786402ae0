r"""What an energy sees of w next to t: residuals of its base, and how far out they lie.

    r = P (w - b - A' t)   next to it shapes that stay where they are in the data are simple,
    v = T(t) (r - m(t))    next to it shapes that move and scale with the simulator are.

An energy that sees r alone has to learn from the data where the base has moved to; one that sees v alone, to undo its
wiggles.  With both (`TwoViews`) it takes what it needs.

The last number that an energy is given is the squared distance |v|^2.  It is not an input of its network: beyond the
distances that draws of the base reach, an energy fades out (`unle.models.energy_model`).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import chdtri

from unle.models.bases import AbstractBase, AbstractBaseWrapper, FixedMeasure
from unle.models.mixture_noise import NoisyBase
from unle.space.host_device import on_device

REACH_SHARE = 0.999  # share of the base's draws within the distance up to which an energy counts in full
DRAWS = 20_000


class AbstractView(AbstractBaseWrapper):
    """A base whose last feature is the squared distance |v|^2; to make one, say what stands before it."""

    def features(self, t, w):
        return self.log_density_and_features(t, w)[1]

    def log_density(self, t, w):
        """Return that of the base, which may be cheaper than v is."""
        return self.base.log_density(t, w)


class OneView(AbstractView):
    """The base's own features, and the distance."""

    base: AbstractBase

    def log_density_and_features(self, t, w):
        v, log_det = self.base.whiten_with_log_det(t, w)
        own = self.base.seen(v) if self.base.sees_whitened() else self.base.features(t, w)
        seen = jnp.append(own, distance(self.base, v))
        return self.log_density_whitened(v) + log_det, seen

    def features_whitened(self, t, v):
        return jnp.append(self.base.features_whitened(t, v), distance(self.base, v))


class TwoViews(AbstractView):
    """The base's own features, its coordinates v, and the distance."""

    base: AbstractBase

    def log_density_and_features(self, t, w):
        """Return both from one v: its gradient goes through the base once."""
        v, log_det = self.base.whiten_with_log_det(t, w)
        return self.log_density_whitened(v) + log_det, self._seen(self.base.features(t, w), v)

    def features_whitened(self, t, v):
        return self._seen(self.base.features_whitened(t, v), v)

    def _seen(self, r, v):
        return jnp.concatenate([r, self.base.seen(v), distance(self.base, v)[None]])


def distance(base: AbstractBase, v: Float[Array, " data"]) -> Float[Array, ""]:
    """Return the squared distance of residuals, as an energy sees them, from the middle."""
    return jnp.sum(jnp.square(base.seen(v)))


def in_one_view(base: AbstractBase) -> AbstractBase:
    """Return the base with its distance among the features; a fixed measure as it is."""
    return base if isinstance(base, FixedMeasure) else OneView(base)


def in_two_views(base: AbstractBase) -> AbstractBase:
    """Return the base with both views of w, or with one if they are the same; a fixed measure as it is."""
    return TwoViews(base) if not base.sees_whitened() else in_one_view(base)


def reach_of(bases: AbstractBase, dim_data: int, *, members: int) -> Float[Array, " member"] | None:
    """Return |v|^2 that one draw in a thousand of stacked bases exceeds; None for bases that do not tell distances."""
    if not isinstance(bases, AbstractView):
        return None
    nodes = jax.tree.leaves(bases, is_leaf=lambda node: isinstance(node, NoisyBase))
    if any(isinstance(node, NoisyBase) for node in nodes):
        squares = np.asarray(_distances(bases.base))
        return on_device(np.quantile(squares, REACH_SHARE, axis=1))
    return on_device(np.full(members, chdtri(dim_data, 1 - REACH_SHARE)))


@eqx.filter_jit
def _distances(bases: AbstractBase) -> Float[Array, "member draw"]:
    def of_member(base):
        v = base.draws_whitened(jax.random.key(0), DRAWS)
        return jax.vmap(lambda v: distance(base, v))(v)

    return eqx.filter_vmap(of_member)(bases)


def length_seen(bases: AbstractBase, dim_theta: int, dim_data: int) -> int:
    """Return how many numbers an energy on top of stacked bases is given of w."""

    def of_members(bases, t, w):
        return eqx.filter_vmap(lambda base: base.features(t, w))(bases)

    t, w = (jax.ShapeDtypeStruct((dim,), jnp.float32) for dim in (dim_theta, dim_data))
    return eqx.filter_eval_shape(of_members, bases, t, w).shape[-1]
