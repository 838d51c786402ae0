"""Standardised coordinates for data and parameters.

    x --spread counts and atoms over cells, drop constants--> y
      --marginal transforms g--> g(y) --(g(y) - mean) / scale--> z --drop redundant--> w

w is what models are densities of; standardised parameters are called t (docs/glossary.md has all symbols).

A coordinate that never varies cannot be standardised, and one that is a linear function of the others (in z)
has no density; both would break training, so both are left out of the model and restored by `XSpace.inverse`.

Three fits of these spaces to simulations differ in how much they do:

* `fit_theta_space`, `fit_x_space` choose marginal transforms, look for counts and atoms, and use robust scales;
* with `plain=True` they take means and standard deviations and nothing else, as the paper does;
* `restandardise_theta`, `restandardise_x` change means and scales only.  Simulations gather around an observation and
  the old scales no longer fit.  The new coordinates are an affine change of the old ones, z = a + b z': networks can be
  re-expressed exactly, and compiled functions serve again.  `add_transforms` comes before, where data have outliers
  that the old simulations had not: no affine change draws these in.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from unle.compiling import on_device
from unle.errors import InputError
from unle.space.dependence import Blocks
from unle.space.marginals import (
    GAIN,
    IDENTITY,
    LARGE_GAIN,
    ROWS,
    Cells,
    Marginals,
    choose_marginals,
    find_cells,
    identity_marginals,
)

# A spread below this fraction of the magnitude is rounding: about eight units in the last place of float32.
CONSTANT = 1e-6
# A coordinate is redundant if the earlier ones predict it up to this fraction of its standard deviation.
MOST_PECULIARITIES = 4  # named in one line
REDUNDANT = 1e-4
# An observation whose redundant coordinate is off by this many standard deviations breaks the relation.
UNLIKE = 100 * REDUNDANT
# Standard deviations beyond the extreme simulation from which an observation is called outside.
OUTSIDE = 1.0
FAR = 10.0  # the same, from which the posterior means nothing
ADVICE = ": check its units first, then the prior and the simulator; do not use the posterior before"
OFF_CELL = 1e-3  # distance from the nearest value of discrete data, in steps or in the value itself
CHECKED_ROWS = 20  # of an observation are compared with the simulations
SHOWN_LINES = 3  # coordinates that a warning names
# The standard deviation is not trusted if clipping the extreme 1 % on either side shrinks it by this factor.
OUTLIER_RATIO = 5.0
# Parameters only feed a network, where no Gaussian likelihood can be spoilt, so less gain is asked for,
# little enough for log-normal priors to become normal.
THETA_GAIN = 0.1
# A new scale is at least this fraction of the old one: a smaller spread is due to rounding.
SMALLEST_RESCALING = 1e-6


class Standardiser(eqx.Module):
    """The elementwise bijection z = (g(y) - mean) / scale, with g the marginal transforms."""

    marginals: Marginals
    mean: Float[Array, " dim"]
    scale: Float[Array, " dim"]

    def forward(self, y: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """Return z(y)."""
        return (self.marginals.forward(y) - self.mean) / self.scale

    def forward_table(self, values: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n dim"]:
        """Return z of many rows on the host, in float64: there is nothing to compile."""
        return (self.marginals.forward_table(values) - np.asarray(self.mean)) / np.asarray(self.scale)

    def inverse(self, z: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """Return y(z)."""
        return self.marginals.inverse(self.mean + self.scale * z)

    def log_det(self, y: Float[Array, " dim"]) -> Float[Array, ""]:
        """Return log |det dz/dy|."""
        return self.marginals.log_det(y) - jnp.sum(jnp.log(self.scale))


class ThetaSpace(eqx.Module):
    """Standardised parameters t: inputs of networks, on a log scale where they span decades."""

    standardiser: Standardiser

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return self.standardiser.mean.shape[0]

    def forward(self, theta: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """Return t, the network's input for theta."""
        return self.standardiser.forward(theta)

    def forward_table(self, theta: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n dim"]:
        """Return t of many rows, on the host."""
        return self.standardiser.forward_table(theta)

    def inverse(self, t: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """Return the theta whose network input is t."""
        return self.standardiser.inverse(t)


class XSpace(eqx.Module):
    """Standardised data w, without constant or redundant coordinates: what models are densities of."""

    cells: Cells  # what single values with positive probability are spread over
    standardiser: Standardiser  # of the coordinates that vary, modelled ones first, then redundant ones
    # z of the redundant coordinates = weights @ (z of the modelled ones) + offset
    weights: Float[Array, "redundant dim"]
    offset: Float[Array, " redundant"]  # see `weights`
    low: Float[Array, " dim_x"]  # smallest training value of every raw coordinate; the value itself where constant
    high: Float[Array, " dim_x"]  # largest training value
    modelled: tuple[int, ...] = eqx.field(static=True)  # indices of the raw coordinates that are modelled, in order
    redundant: tuple[int, ...] = eqx.field(static=True)  # indices of the raw coordinates that follow from them
    constant: tuple[int, ...] = eqx.field(static=True)  # indices of the raw coordinates that never vary

    @property
    def dim_x(self) -> int:
        """Number of raw coordinates."""
        return self.low.shape[0]

    @property
    def dim(self) -> int:
        """Number of modelled coordinates."""
        return len(self.modelled)

    def forward(self, x: Float[Array, " dim_x"], u: Float[Array, " dim_x"] | float = 0.5) -> Float[Array, " dim"]:
        """Return w, the modelled coordinates of x, standardised, at the place u (from 0 to 1) of its cell."""
        spread = self.cells.spread(x, u)
        return self.standardiser.forward(spread[np.array((*self.modelled, *self.redundant))])[: self.dim]

    def cell(self, x: Float[Array, " dim_x"]) -> Float[Array, "5 dim"]:
        """Return w at the lower end, in the middle and at the upper end of the cell of x, and which ends are open."""
        kept = np.array(self.modelled)
        is_open = (self.cells.ends * jnp.array([[1.0], [-1.0]]) >= x * jnp.array([[1.0], [-1.0]]))[:, kept]
        points = (self.forward(x, u) for u in (0.0, 0.5, 1.0))
        return jnp.stack([*points, *is_open.astype(x.dtype)])

    def forward_table(
        self, x: Float[np.ndarray, "n dim_x"], u: Float[np.ndarray, "n dim_x"] | float = 0.5
    ) -> Float[np.ndarray, "n dim"]:
        """Return w of many rows, on the host."""
        return self._standardised_table(x, u)[:, : self.dim]

    def inverse(self, w: Float[Array, " dim"]) -> Float[Array, " dim_x"]:
        """Return the x with these modelled coordinates; redundant and constant ones are restored."""
        # At full precision: some accelerators round the factors of a product to ten bits unless told not to.
        restored = jnp.matmul(self.weights, w, precision=jax.lax.Precision.HIGHEST) + self.offset
        z = jnp.concatenate([w, restored])
        x = jnp.concatenate([self.standardiser.inverse(z), self.low[np.array(self.constant, dtype=int)]])
        return self.cells.gather(x[np.argsort((*self.modelled, *self.redundant, *self.constant))])

    def log_det(self, x: Float[Array, " dim_x"]) -> Float[Array, ""]:
        """Return log |det dw/dx| over the modelled coordinates: add it to a density of w to get one of x.

        A coordinate that has a cell counts by the cell's width in w: the result is a probability there.
        """
        first = jax.tree.map(lambda leaf: leaf[: self.dim], self.standardiser)
        slopes = jnp.diagonal(jax.jacfwd(first.forward)(self.cells.spread(x)[np.array(self.modelled)]))
        lower, _, upper, *_ = self.cell(x)
        return jnp.sum(jnp.log(jnp.where(upper > lower, upper - lower, slopes)))

    def describe(self, names: Sequence[str] | None = None) -> list[str]:
        """Say in one line per raw coordinate what happens to it."""
        names = self._names(names, "x")
        kinds = dict(zip((*self.modelled, *self.redundant), self.standardiser.marginals.names(), strict=True))
        lines = []
        for i in range(self.dim_x):
            low, high = float(self.low[i]), float(self.high[i])
            if i in self.constant:
                lines.append(f"{names[i]}: {low:.4g} in every simulation, not modelled")
            elif i in self.redundant:
                weights = self.weights[self.redundant.index(i)]
                sources = [
                    names[j] for j, weight in zip(self.modelled, weights, strict=True) if abs(weight) > REDUNDANT
                ]
                lines.append(f"{names[i]}: follows from {', '.join(sources)}, not modelled")
            else:
                kind = f"{self.cells.describe(i)}{kinds[i]} scale"
                lines.append(f"{names[i]}: {kind}, {low:.4g} to {high:.4g} in the simulations")
        return lines

    @property
    def peculiarities(self) -> str:
        """Say in one line what of x is not a plain number: grids, atoms, constants; nothing if all are."""
        kept = np.array(self.modelled)
        step, atoms = np.asarray(self.cells.step)[kept], np.asarray(self.cells.atoms)[:, kept]
        levels = np.isfinite(np.asarray(self.cells.levels)[:1, kept]).sum()
        parts = []
        for h in np.unique(step[step > 0]):
            many = "" if np.sum(step == h) == 1 else "s"
            kind = f"whole number{many}" if h == 1 else f"multiple{many} of {h:.4g}"
            parts.append(f"{np.sum(step == h)} {kind}")
        parts += [f"{levels} of a few values"] * bool(levels)
        parts += [f"{np.sum(atoms == a)} often exactly {a:.4g}" for a in np.unique(atoms[np.isfinite(atoms)])]
        parts += [f"{len(self.constant)} constant"] * bool(self.constant)
        parts += [f"{len(self.redundant)} determined by the others"] * bool(self.redundant)
        if len(parts) > MOST_PECULIARITIES:
            parts = [*parts[:MOST_PECULIARITIES], "and more"]
        return f"Recognised among the {self.dim_x} numbers of x: {', '.join(parts)}." if parts else ""

    def check_observation(self, x_o: ArrayLike | Sequence[Any], names: Sequence[str] | None = None) -> list[str]:
        """Say in one sentence each where an observation is unlike every simulation; nothing if all is well.

        A model can only be trusted where there were simulations. An observation slightly beyond the extreme
        simulation is common and not reported; one that is further out than a standard deviation is.

        Args:
            x_o: one observation, shape (dim_x,), or several, shape (n, dim_x).
            names: one name per raw coordinate; x_o[0], x_o[1], ... if not given.

        Raises:
            InputError: the shape is wrong or a value is not finite.
        """
        names = self._names(names, "x_o")
        rows = np.asarray(x_o, dtype=np.float64)
        if rows.ndim not in (1, 2) or rows.shape[-1] != self.dim_x:
            raise InputError(f"expected x_o of shape ({self.dim_x},) or (n, {self.dim_x}); got {rows.shape}.")
        if not np.all(np.isfinite(rows)):
            *_, i = np.argwhere(~np.isfinite(rows))[0]
            raise InputError(f"expected a finite observation; got {names[i]} = {rows[..., i].ravel()}.")
        if rows.ndim == 1:
            return self._check_row(rows, names)
        return [f"row {r}: {line}" for r, row in enumerate(rows) for line in self._check_row(row, names)]

    def observation_warning(self, rows: Float[np.ndarray, "n dim_x"], names: Sequence[str] = ()) -> str | None:
        """Return one sentence about all coordinates in which an observation is unlike every simulation, or None."""
        rows = rows[:CHECKED_ROWS]
        if np.isnan(rows).any():
            if self.redundant:  # which may follow from what is missing
                return None
            rows = np.where(np.isnan(rows), np.asarray(self.low, float), rows)  # of what is missing say nothing
        lines = self.check_observation(rows[0] if len(rows) == 1 else rows, names or None)
        more = f"; and {len(lines) - SHOWN_LINES} more such coordinates" if len(lines) > SHOWN_LINES else ""
        return "; ".join(lines[:SHOWN_LINES]) + more if lines else None

    def _check_row(self, row: np.ndarray, names: tuple[str, ...]) -> list[str]:
        sentences = self._off_cells(row, names) | self._broken_relations(row, names) | self._outside(row, names)
        sentences |= self._changed_constants(row, names)
        return [sentences[i] for i in sorted(sentences)]

    def _off_cells(self, row: np.ndarray, names: tuple[str, ...]) -> dict[int, str]:
        sentences, x = {}, row.astype(np.float32).astype(float)  # as the cells were found
        nearest = self.cells.gather(self.cells.spread(x))
        for i in self.cells.which:
            low, high = (float(ends[i]) for ends in (self.low, self.high))
            is_off = abs(nearest[i] - row[i]) > OFF_CELL * max(float(self.cells.step[i]), abs(row[i]))
            if is_off and (low <= row[i] <= high or np.isfinite(np.asarray(self.cells.levels)[:1, i]).any()):
                kind = self.cells.describe(i).removesuffix(", ")
                sentences[i] = f"{names[i]} = {row[i]:.4g}, but the simulations give {kind} there"
        return sentences

    def _changed_constants(self, row: np.ndarray, names: tuple[str, ...]) -> dict[int, str]:
        sentences = {}
        for i in self.constant:
            value = float(self.low[i])
            if abs(row[i] - value) > 10 * CONSTANT * max(abs(row[i]), abs(value)):
                sentences[i] = f"{names[i]} = {row[i]:.4g}, but every simulation gave {value:.4g}"
        return sentences

    def _outside(self, row: np.ndarray, names: tuple[str, ...]) -> dict[int, str]:
        sentences = {}
        z, z_low, z_high = self._standardised_table(np.stack([row, self.low, self.high]))
        beyond = np.maximum(z_low - z, z - z_high)
        for place, i in enumerate((*self.modelled, *self.redundant)):
            if beyond[place] > OUTSIDE:
                sentences[i] = (
                    f"{names[i]} = {row[i]:.4g} lies outside the simulations "
                    f"(range {float(self.low[i]):.4g} to {float(self.high[i]):.4g}), "
                    f"{beyond[place]:.3g} standard deviations beyond them" + ADVICE * bool(beyond[place] > FAR)
                )
        return sentences

    def _broken_relations(self, row: np.ndarray, names: tuple[str, ...]) -> dict[int, str]:
        sentences = {}
        z = self._standardised_table(row[None])[0]
        expected = np.asarray(self.weights) @ z[: self.dim] + np.asarray(self.offset)
        for place, i in enumerate(self.redundant):
            if abs(z[self.dim + place] - expected[place]) > UNLIKE * (1 + abs(expected[place])):
                value = self.inverse(jnp.asarray(z[: self.dim], self.low.dtype))[i]
                sentences[i] = (
                    f"{names[i]} = {row[i]:.4g}, but in every simulation the other coordinates determine it, "
                    f"and here they give {float(value):.4g}"
                )
        return sentences

    def _standardised_table(self, rows: np.ndarray, u: np.ndarray | float = 0.5) -> np.ndarray:
        """Return z of many rows on the host, modelled coordinates first."""
        spread = self.cells.spread(rows, u)
        return self.standardiser.forward_table(spread[:, np.array((*self.modelled, *self.redundant))])

    def _names(self, names, word: str) -> tuple[str, ...]:
        if names is None:
            return tuple(f"{word}[{i}]" for i in range(self.dim_x))
        if len(names) != self.dim_x:
            raise InputError(f"expected {self.dim_x} names, one per coordinate of x; got {len(names)}.")
        return tuple(names)


def fit_theta_space(theta: ArrayLike, *, plain: bool = False) -> ThetaSpace:
    """Fit marginal transforms, means and scales to training parameters; no transforms if `plain`.

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


def add_transforms(space: XSpace, x: ArrayLike, u: Float[np.ndarray, "n dim_x"] | float = 0.5) -> XSpace:
    """Return the space with a marginal transform of these data where there was none and it gains much; others stay.

    Much, since what is gained must be worth leaving the scale that earlier fits had.  Nothing changes where coordinates
    are redundant: a linear relation would not survive.  Nor do counts and the like, which have no heavy tails to tame.
    """
    old = space.standardiser
    is_plain = np.asarray(old.marginals.kind) == IDENTITY
    plain = np.flatnonzero(is_plain & ~np.isin(np.array(space.modelled), space.cells.which))
    if space.redundant or not len(plain):
        return space
    y = space.cells.spread(np.asarray(x, float), u)[:, np.array(space.modelled)[plain]]
    chosen = choose_marginals(y, gain=LARGE_GAIN)
    transformed = plain[np.asarray(chosen.kind) != IDENTITY]  # their old means and scales are in other units
    marginals = jax.tree.map(lambda leaf, own: _replaced(leaf, plain, own), old.marginals, chosen)
    new = Standardiser(marginals, _replaced(old.mean, transformed, 0.0), _replaced(old.scale, transformed, 1.0))
    return eqx.tree_at(lambda s: s.standardiser, space, new)


def _replaced(values: Array, places: Int[np.ndarray, " m"], by: ArrayLike) -> Array:
    """Return the values with others at some places; on the host, where there is nothing to compile."""
    changed = np.array(values)
    changed[places] = by
    return on_device(changed, values.dtype)


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

    Gram-Schmidt in the order of the coordinates (QR that keeps the earliest as pivots): what is left of a coordinate
    after projection on those kept is compared with its standard deviation.  With few rows everything looks dependent,
    so a coordinate is only tested against fewer others than half the rows.  Returned are the indices kept, weights and
    offset.
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
