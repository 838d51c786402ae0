"""Standardisation as the paper has it: means and standard deviations, and nothing else.

No marginal transform is chosen, no count is spread and no outlier is looked at, unlike `unle.space.scaling`.
Coordinates that never vary cannot be divided by their standard deviation, and those that follow from others have no
density: both are left out, as there.
"""

import numpy as np
from jaxtyping import ArrayLike, Float

from unle.errors import InputError
from unle.space.cells import Cells
from unle.space.marginals import IDENTITY, Marginals
from unle.space.restandardise import affine_change
from unle.space.scaling import CONSTANT, Standardiser, ThetaSpace, XSpace, _checked, _redundancy
from unle.space.transfer import on_device

NARROWEST = 1e-6  # of the scale before: a smaller spread is due to rounding


def plain_theta_space(theta: ArrayLike, like: ThetaSpace | None = None) -> ThetaSpace:
    """Fit means and standard deviations to parameters.

    Args:
        theta: shape (n, d).
        like: an earlier space of the same parameters, from which scales that have vanished are taken.

    Example:
        >>> import numpy as np
        >>> from unle.space.plain import plain_theta_space
        >>> space = plain_theta_space(np.array([[1.0], [3.0]]))
        >>> space.forward_table(np.array([[2.0], [3.0]])).tolist()
        [[0.0], [1.0]]
    """
    return ThetaSpace(_standardiser(_checked(theta, "theta"), None if like is None else like.standardiser))


def plain_x_space(x: ArrayLike, like: XSpace | None = None) -> XSpace:
    """Fit means and standard deviations to data.

    Args:
        x: shape (n, dim_x).
        like: an earlier space of the same data, whose choice of modelled coordinates is kept.
    """
    x = _checked(x, "x")
    if like is None:
        return _first(x)
    standardiser = _standardiser(x[:, np.array((*like.modelled, *like.redundant))], like.standardiser)
    a, b = affine_change(like.standardiser, standardiser)
    k = like.dim
    # z_redundant = W z + o in the old coordinates, written in the new ones.
    weights = like.weights * b[:k] / b[k:, None]
    offset = (like.weights @ a[:k] + like.offset - a[k:]) / b[k:]
    never = np.array(like.constant, dtype=int)
    low, high = np.min(x, axis=0), np.max(x, axis=0)
    low[never] = high[never] = np.asarray(like.low)[never]
    places = like.modelled, like.redundant, like.constant
    return XSpace(like.cells, standardiser, weights, offset, on_device(low), on_device(high), *places)


def _first(x: Float[np.ndarray, "n dim_x"]) -> XSpace:
    constant = np.ptp(x, axis=0) <= CONSTANT * np.max(np.abs(x), axis=0)
    moving = np.flatnonzero(~constant)
    if not len(moving):
        raise InputError(f"expected simulations that differ; got {len(x)} equal rows; does the simulator use theta?")
    kept, weights, offset = _redundancy(_standardiser(x[:, moving], None).forward_table(x[:, moving]))
    dropped = np.setdiff1d(np.arange(len(moving)), kept)
    order = moving[np.concatenate([kept, dropped]).astype(int)]
    low, high = (getattr(np, end)(x, axis=0) for end in ("min", "max"))
    middle = np.median(x, axis=0)
    zeros, nothing = np.zeros(x.shape[1]), np.zeros((0, x.shape[1]))
    return XSpace(
        Cells(*map(on_device, (zeros, zeros, nothing, nothing))),
        _standardiser(x[:, order], None),
        on_device(weights),
        on_device(offset),
        on_device(np.where(constant, middle, low)),
        on_device(np.where(constant, middle, high)),
        modelled=tuple(int(i) for i in moving[kept]),
        redundant=tuple(int(i) for i in moving[dropped]),
        constant=tuple(int(i) for i in np.flatnonzero(constant)),
    )


def _standardiser(values: Float[np.ndarray, "n dim"], like: Standardiser | None) -> Standardiser:
    mean, scale = values.mean(axis=0), values.std(axis=0)
    least = np.zeros_like(scale) if like is None else NARROWEST * np.asarray(like.scale)
    scale = np.maximum(scale, least)
    ones = on_device(np.ones_like(mean))
    identity = Marginals(on_device(np.full(mean.shape, IDENTITY), np.int32), 0 * ones, ones, ones, ones)
    return Standardiser(identity, on_device(mean), on_device(np.where(scale > 0, scale, 1.0)))
