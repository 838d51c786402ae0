"""Standardised coordinates for data and parameters.

    x --spread counts and atoms over cells, drop constants--> y
      --marginal transforms g--> g(y) --(g(y) - mean) / scale--> z --drop redundant--> w

w is what models are densities of; standardised parameters are called t (docs/glossary.md has all symbols).

A coordinate that never varies cannot be standardised, and one that is a linear function of the others (in z)
has no density; both would break training, so both are left out of the model and restored by `XSpace.inverse`.
`unle.space.fit_spaces` fits these spaces to simulations.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from unle.errors import InputError
from unle.space.data_kinds import Cells
from unle.space.marginals import Marginals

# A spread below this fraction of the magnitude is rounding: about eight units in the last place of float32.
CONSTANT = 1e-6
# A coordinate is redundant if the earlier ones predict it up to this fraction of its standard deviation.
REDUNDANT = 1e-4
# An observation whose redundant coordinate is off by this many standard deviations breaks the relation.
UNLIKE = 100 * REDUNDANT
# Standard deviations beyond the extreme simulation from which an observation is called outside.
OUTSIDE = 1.0
CHECKED_ROWS = 20  # of an observation are compared with the simulations
SHOWN_LINES = 3  # coordinates that a warning names


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
        """Return log |det dw/dx| over the modelled coordinates: add it to a density of w to get one of x."""
        first = jax.tree.map(lambda leaf: leaf[: self.dim], self.standardiser)
        return first.log_det(self.cells.spread(x)[np.array(self.modelled)])

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

    def observation_warning(self, rows: Float[np.ndarray, "n dim_x"]) -> str | None:
        """Return one sentence about all coordinates in which an observation is unlike every simulation, or None.

        Args:
            rows: the observation, of which the first rows are looked at.
        """
        rows, inner = rows[:CHECKED_ROWS], (np.asarray(self.low, float) + np.asarray(self.high, float)) / 2
        if np.isnan(rows).any():
            if self.redundant:  # which may follow from what is missing
                return None
            rows = np.where(np.isnan(rows), inner, rows)  # of what is missing there is nothing to say
        lines = self.check_observation(rows[0] if len(rows) == 1 else rows)
        more = f"; and {len(lines) - SHOWN_LINES} more such coordinates" if len(lines) > SHOWN_LINES else ""
        return "; ".join(lines[:SHOWN_LINES]) + more if lines else None

    def _check_row(self, row: np.ndarray, names: tuple[str, ...]) -> list[str]:
        sentences = self._broken_relations(row, names) | self._outside(row, names) | self._changed_constants(row, names)
        return [sentences[i] for i in sorted(sentences)]

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
                    f"{beyond[place]:.2g} standard deviations beyond them"
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
