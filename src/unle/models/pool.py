r"""The geometric pool of several doubly intractable likelihoods: one conditional model with their mean energy.

    q(w | theta) = prod_k f_k(w | theta)^a_k / Z(theta),   Z(theta) = int prod_k f_k(w | theta)^a_k dw

The equal mixture of the members would need every Z_k(theta), which nobody knows.  Here they cancel: a factor of f_k
that depends on theta alone is a factor of the pool's own Z(theta).  So the pool is a doubly intractable likelihood like
any of its members, and the exchange algorithm applies to it as it is.  What one member gets wrong in log q counts a_k.
"""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from unle.errors import InputError
from unle.models.conditional import ConditionalLikelihood, DoublyIntractableLikelihood
from unle.models.mixture import stacked, unstacked


class GeometricPool(DoublyIntractableLikelihood):
    r"""The geometric mean of conditional models; made by `geometric_pool`.

    The coordinates v are those of the first member's base: with w = w(t, v) on them,

        s(t, v) = sum_k a_k log f_k(w | theta) - log q0_1(w | t).

    Bases fitted to the same data are close to each other, and s close to minus the mean energy.

    Args:
        members: conditional models that share their spaces, every array stacked along a leading axis.
        weights: a, which add up to one.
    """

    members: ConditionalLikelihood
    weights: Float[Array, " members"]

    @property
    def x_space(self):
        """The members' common standardisation of x."""
        return self._first.x_space

    @property
    def _first(self) -> ConditionalLikelihood:
        return unstacked(self.members, 0)

    def prepare(self, x):
        """Return w, the same for all members."""
        return self._first.prepare(x)

    def standardise(self, theta):
        """Return t, the same for all members."""
        return self._first.standardise(theta)

    def log_unnormalised(self, theta, w):
        """Return the weighted mean of the members' log f(w | theta)."""
        return self._mean_log_density(self.standardise(theta), w)

    def log_tilt(self, t, v):
        """Return the pool's log-density over that of the first base, at v."""
        base = self._first.model.base
        w = base.unwhiten(t, v)
        return self._mean_log_density(t, w) - base.log_density(t, w)

    def log_reference(self, v):
        """Return log q0(v)."""
        return self._first.log_reference(v)

    def draws(self, key, n):
        """Draw from q0(v)."""
        return self._first.draws(key, n)

    def whiten(self, t, w):
        """Return the first base's coordinates of w."""
        return self._first.whiten(t, w)

    def unwhiten(self, t, v):
        """Return w at the first base's coordinates v."""
        return self._first.unwhiten(t, v)

    def _mean_log_density(self, t, w):
        return self.weights @ eqx.filter_vmap(lambda member: member.model.log_density(t, w))(self.members)


def geometric_pool(
    members: Sequence[ConditionalLikelihood], weights: Sequence[float] | None = None
) -> DoublyIntractableLikelihood:
    """Return the geometric pool of conditional models that share their coordinates; of one member, that member.

    Args:
        members: with arrays of the same shapes; the coordinates of auxiliary draws are the first one's.
        weights: of the members, up to a factor; equal by default.
    """
    if len(members) == 1:
        return members[0]
    pooled = stacked(members)
    given = jnp.ones(len(members)) if weights is None else jnp.asarray(weights, jnp.float32)
    if given.shape != (len(members),) or not bool(jnp.all(given >= 0) & (jnp.sum(given) > 0)):
        raise InputError(f"expected a weight >= 0 for each of {len(members)} members, not all zero; got {weights}.")
    return GeometricPool(pooled, given / jnp.sum(given))
