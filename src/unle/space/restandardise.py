r"""Standardise anew, without changing the shape of the coordinates.

As rounds go on, simulations gather around an observation and the old means and scales no longer fit.  New ones are an
affine change of the old coordinates, z = a + b z', coordinate by coordinate: marginal transforms and the choice of
modelled coordinates stay, so that networks can be re-expressed exactly and compiled functions serve again.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from unle.space.scaling import Standardiser, ThetaSpace, XSpace, _location_and_scale


def restandardise_theta(space: ThetaSpace, theta: ArrayLike) -> ThetaSpace:
    """Return the space with means and scales of these parameters, shape (n, d)."""
    return ThetaSpace(_refitted(space.standardiser, np.asarray(theta, float)))


def restandardise_x(space: XSpace, x: ArrayLike, u: Float[np.ndarray, "n dim_x"] | float = 0.5) -> XSpace:
    """Return the space with means, scales and ranges of these data, shape (n, dim_x), each at u in its cell."""
    x = np.asarray(x, float)
    places = np.array((*space.modelled, *space.redundant))
    standardiser = _refitted(space.standardiser, space.cells.spread(x, u)[:, places])
    a, b = affine_change(space.standardiser, standardiser)
    k = space.dim
    # z_redundant = W z + o in the old coordinates, written in the new ones.
    weights = space.weights * b[:k] / b[k:, None]
    offset = (space.weights @ a[:k] + space.offset - a[k:]) / b[k:]
    constant = np.array(space.constant, dtype=int)
    low, high = np.min(x, axis=0), np.max(x, axis=0)
    low[constant] = high[constant] = np.asarray(space.low)[constant]
    return eqx.tree_at(
        lambda s: (s.standardiser, s.weights, s.offset, s.low, s.high),
        space,
        (standardiser, weights, offset, jnp.asarray(low, space.low.dtype), jnp.asarray(high, space.high.dtype)),
    )


def affine_change(old: Standardiser, new: Standardiser) -> tuple[Float[Array, " dim"], Float[Array, " dim"]]:
    """Return a and b of z = a + b z', old coordinates from new ones; the marginal transforms must be the same."""
    return (new.mean - old.mean) / old.scale, new.scale / old.scale


def _refitted(old: Standardiser, values: np.ndarray) -> Standardiser:
    mean, scale = _location_and_scale(old.marginals.forward_table(values))
    # Coordinates that no longer vary keep their scale: dividing by almost nothing would blow rounding up.
    scale = np.maximum(scale, 1e-6 * np.asarray(old.scale))
    dtype = old.mean.dtype
    return Standardiser(old.marginals, jnp.asarray(mean, dtype), jnp.asarray(scale, dtype))
