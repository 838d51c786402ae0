r"""A base of repeated measurements: one density for each of them.

    q0(w | t) = prod_b q(w_b | t)

The blocks w_b are coordinates of w that were found to be alike (`unle.space.repetition`); q was fitted to all of them.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unle.models.bases import AbstractBase


class Repeated(AbstractBase):
    """The product of the base of one measurement over blocks, the coordinates of w that belong to each measurement."""

    one: AbstractBase
    blocks: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    @property
    def repeats(self) -> int:
        """Number of measurements."""
        return len(self.blocks)

    def whiten_with_log_det(self, t, w):
        parts, log_dets = jax.vmap(lambda part: self.one.whiten_with_log_det(t, part))(self._apart(w))
        return self._together(parts), jnp.sum(log_dets)

    def unwhiten(self, t, v):
        return self._together(jax.vmap(lambda part: self.one.unwhiten(t, part))(self._apart(v)))

    def log_density_whitened(self, v):
        return jnp.sum(jax.vmap(self.one.log_density_whitened)(self._apart(v)))

    def draws_whitened(self, key, n):
        parts = self.one.draws_whitened(key, n * self.repeats)
        return jax.vmap(self._together)(parts.reshape(n, self.repeats, -1))

    def sees_whitened(self):
        return self.one.sees_whitened()

    def seen(self, v):
        return self._together(jax.vmap(self.one.seen)(self._apart(v)))

    def features(self, t, w):
        return self._together(jax.vmap(lambda part: self.one.features(t, part))(self._apart(w)))

    def features_whitened(self, t, v):
        return self._together(jax.vmap(lambda part: self.one.features_whitened(t, part))(self._apart(v)))

    def _apart(self, w: Float[Array, " data"]) -> Float[Array, "block part"]:
        return w[np.array(self.blocks)]

    def _together(self, parts: Float[Array, "block part"]) -> Float[Array, " data"]:
        return parts.ravel()[np.argsort(np.ravel(self.blocks))]
