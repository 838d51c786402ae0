r"""Fit the standardised coordinates of `unle.space.scaling` to simulations, and fit them anew as rounds go on.

Three fits differ in how much they do:

* `fit_theta_space`, `fit_x_space` choose marginal transforms, look for counts and atoms, and use robust scales;
* with `plain=True` they take means and standard deviations and nothing else, as the paper does;
* `restandardise_theta`, `restandardise_x` change means and scales only.  Simulations gather around an observation and
  the old scales no longer fit.  The new coordinates are an affine change of the old ones, z = a + b z': networks can be
  re-expressed exactly, and compiled functions serve again.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from unle.errors import InputError
from unle.space.data_kinds import Blocks, Cells, find_cells
from unle.space.host_device import on_device
from unle.space.marginals import GAIN, ROWS, choose_marginals, identity_marginals
from unle.space.scaling import CONSTANT, REDUNDANT, Standardiser, ThetaSpace, XSpace

# The standard deviation is not trusted if clipping the extreme 1 % on either side shrinks it by this factor.
OUTLIER_RATIO = 5.0
# Parameters only feed a network, where no Gaussian likelihood can be spoilt, so less gain is asked for,
# little enough for log-normal priors to become normal.
THETA_GAIN = 0.1
# A new scale is at least this fraction of the old one: a smaller spread is due to rounding.
SMALLEST_RESCALING = 1e-6


def fit_theta_space(theta: ArrayLike, *, plain: bool = False) -> ThetaSpace:
    """Fit marginal transforms, means and scales to training parameters.

    Args:
        theta: shape (n, d).
        plain: whether to take means and standard deviations only.

    Example:
        >>> import numpy as np
        >>> from unle.space import fit_theta_space
        >>> space = fit_theta_space(np.array([[1.0], [3.0]]), plain=True)
        >>> space.forward_table(np.array([[2.0], [3.0]])).tolist()
        [[0.0], [1.0]]
    """
    return ThetaSpace(standardiser=_fit(_as_table(theta, "theta"), gain=None if plain else THETA_GAIN))


def fit_x_space(x: ArrayLike, blocks: Blocks | None = None, *, plain: bool = False) -> XSpace:
    """Fit the standardised space of the data to training simulations, shape (n, dim_x).

    Args:
        x: the data.
        blocks: coordinates of repeated measurements, which are then standardised alike; not if some never vary.
        plain: whether to take means and standard deviations only, and no cells.

    Raises:
        InputError: x is not a finite table of at least two rows, or nothing in it varies.
    """
    x = _as_table(x, "x").astype(np.float32).astype(float)  # as an observation will be rounded
    constant = np.ptp(x, axis=0) <= CONSTANT * np.max(np.abs(x), axis=0)
    if np.all(constant):
        raise InputError(f"expected simulations that differ; got {len(x)} equal rows; does the simulator use theta?")
    moving = np.flatnonzero(~constant)
    if blocks is None or constant.any() or plain:
        cells = Cells.none(x.shape[1]) if plain else find_cells(x)
        spread = cells.spread(x, np.random.default_rng(0).uniform(size=x.shape))
        space = _fit(spread[:, moving], gain=None if plain else GAIN)
    else:  # corresponding coordinates of all blocks together
        position = _position_in_block(blocks, x.shape[1])
        cells = find_cells(x, position)
        spread = cells.spread(x, np.random.default_rng(0).uniform(size=x.shape))
        space = _reordered(_fit(spread[:, np.array(blocks)].reshape(-1, len(blocks[0])), gain=GAIN), position)
    kept, weights, offset = _redundancy(space.forward_table(cells.spread(x)[:, moving]))
    dropped = np.setdiff1d(np.arange(len(moving)), kept)
    dtype = space.mean.dtype
    return XSpace(
        cells=cells,
        standardiser=_reordered(space, np.concatenate([kept, dropped]).astype(int)),
        weights=on_device(weights, dtype),
        offset=on_device(offset, dtype),
        low=on_device(np.where(constant, np.median(x, axis=0), np.min(x, axis=0)), dtype),
        high=on_device(np.where(constant, np.median(x, axis=0), np.max(x, axis=0)), dtype),
        modelled=tuple(int(i) for i in moving[kept]),
        redundant=tuple(int(i) for i in moving[dropped]),
        constant=tuple(int(i) for i in np.flatnonzero(constant)),
    )


def restandardise_theta(space: ThetaSpace, theta: ArrayLike, *, plain: bool = False) -> ThetaSpace:
    """Return the space with means and scales of these parameters, shape (n, d)."""
    return ThetaSpace(_refitted(space.standardiser, np.asarray(theta, float), plain=plain))


def restandardise_x(
    space: XSpace, x: ArrayLike, u: Float[np.ndarray, "n dim_x"] | float = 0.5, *, plain: bool = False
) -> XSpace:
    """Return the space with means, scales and ranges of these data, shape (n, dim_x), each at u in its cell."""
    x = np.asarray(x, float)
    varying = np.array((*space.modelled, *space.redundant))
    standardiser = _refitted(space.standardiser, space.cells.spread(x, u)[:, varying], plain=plain)
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
        (standardiser, weights, offset, on_device(low, space.low.dtype), on_device(high, space.high.dtype)),
    )


def affine_change(old: Standardiser, new: Standardiser) -> tuple[Float[Array, " dim"], Float[Array, " dim"]]:
    """Return a and b of z = a + b z', old coordinates from new ones; the marginal transforms must be the same."""
    return (new.mean - old.mean) / old.scale, new.scale / old.scale


def _as_table(values, name: str) -> np.ndarray:
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 2 or values.shape[0] < 2 or values.shape[1] < 1:
        raise InputError(f"expected {name} of shape (n, d) with at least two rows; got {values.shape}.")
    usable = np.abs(values) < np.finfo(np.float32).max  # False for NaN too
    if not np.all(usable):
        row, column = np.argwhere(~usable)[0]
        raise InputError(
            f"expected finite {name} within the range of float32; "
            f"got {name}[{row}, {column}] = {values[row, column]}; "
            "mark failed simulations as invalid and leave them out."
        )
    return values


def _fit(values: np.ndarray, *, gain: float | None) -> Standardiser:
    """Fit means and scales, and marginal transforms that gain `gain` nats per value (None: no transforms)."""
    if gain is None:
        marginals = identity_marginals(values.shape[1])
    else:
        marginals = choose_marginals(values, gain=gain)
    mean, scale = _location_and_scale(marginals.forward_table(values), plain=gain is None)
    dtype = jnp.result_type(float)
    return Standardiser(marginals=marginals, mean=on_device(mean, dtype), scale=on_device(scale, dtype))


def _refitted(old: Standardiser, values: np.ndarray, *, plain: bool) -> Standardiser:
    mean, scale = _location_and_scale(old.marginals.forward_table(values), plain=plain)
    # Coordinates that no longer vary keep their scale: dividing by almost nothing would blow rounding up.
    scale = np.maximum(scale, SMALLEST_RESCALING * np.asarray(old.scale))
    return Standardiser(old.marginals, on_device(mean, old.mean.dtype), on_device(scale, old.mean.dtype))


def _reordered(standardiser: Standardiser, order: np.ndarray) -> Standardiser:
    return jax.tree.map(lambda leaf: on_device(np.asarray(leaf)[order], leaf.dtype), standardiser)


def _position_in_block(blocks: Blocks, dim_x: int) -> np.ndarray:
    """Return the position of every coordinate in its block."""
    position, table = np.empty(dim_x, int), np.array(blocks)
    position[table] = np.arange(table.shape[1])
    return position


def _location_and_scale(w: np.ndarray, *, plain: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation; unless `plain`, those of clipped values where outliers dominate them."""
    mean, scale = np.mean(w, axis=0), np.std(w, axis=0)
    if not plain:
        clipped = np.clip(w, *np.quantile(w, [0.01, 0.99], axis=0))
        robust = np.std(clipped, axis=0)
        rounding = CONSTANT * np.max(np.abs(w), axis=0)  # the standard deviation of equal values is not exactly zero
        dominated = (robust > rounding) & (scale > OUTLIER_RATIO * robust)
        mean = np.where(dominated, np.mean(clipped, axis=0), mean)
        scale = np.where(dominated, robust, scale)
    return mean, np.where(scale > 0, scale, 1.0)


def _redundancy(z: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find coordinates that are linear functions of earlier ones, z_j = weights @ z_kept + offset.

    Gram-Schmidt in the order of the coordinates (QR that keeps the earliest as pivots): what is left of a
    coordinate after projection on those kept is compared with its standard deviation. With few rows
    everything looks dependent, so a coordinate is only tested against fewer others than half the rows.

    Returns:
        The indices kept, the weights (dropped, kept) and the offset (dropped,).
    """
    if len(z) > ROWS:
        z = z[np.random.default_rng(0).permutation(len(z))[:ROWS]]
    rows, dim = z.shape
    centred = z - np.mean(z, axis=0)
    directions, kept = np.zeros((rows, dim)), []
    for j in range(dim):
        testable = 2 * len(kept) < rows - 1
        left = centred[:, j]
        for _ in range(2 if testable else 0):  # once is not orthogonal enough in floating point
            left = left - directions[:, : len(kept)] @ (directions[:, : len(kept)].T @ left)
        length, size = np.linalg.norm(left), np.linalg.norm(centred[:, j])
        if testable and length < REDUNDANT * size:
            continue
        directions[:, len(kept)] = left / (length or 1.0)  # zero if it only varies in the rows left aside
        kept.append(j)
    dropped = np.setdiff1d(np.arange(dim), kept)
    weights = np.linalg.lstsq(centred[:, kept], centred[:, dropped], rcond=None)[0].T
    offset = np.mean(z[:, dropped], axis=0) - weights @ np.mean(z[:, kept], axis=0)
    return np.array(kept), weights, offset
