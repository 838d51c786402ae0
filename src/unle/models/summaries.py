r"""Summaries s(x) of long data: a function of the user's, some of the coordinates, or a network.

A likelihood of a summary is learned in place of that of x.  All summaries are called with a table of data on the host,
and return a table.  What a network sees of x is made by `Features`:

    vector   every coordinate by itself;
    series   moments of a series as a whole, of its increments and by segments, and its spectrum;
    set      moments and quantiles of rows whose order means nothing.

Of series and sets it also sees the outputs of a small network, averaged over windows of the series (a convolution whose
stride is its length) or over the rows of the set (Zaheer et al., "Deep sets", 2017).
"""

import abc
import itertools
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unle.compiling import on_device
from unle.errors import InputError
from unle.models.mlp import Mlp, swish

KINDS = ("vector", "series", "set")
SEGMENTS = 8  # of a series, whose moments are looked at one by one
BANDS = 20  # of its spectrum, at most: nearly all that there is to know of a stationary Gaussian series
LEVELS = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)  # of quantiles of sets
WINDOW = 8  # points in time, at least
MOST_WINDOWS = 32
POOLED = 16  # outputs of a network that sees one window, averaged over all
ROWS_AT_ONCE = 1000
TINY = 1e-12


class AbstractSummary(eqx.Module):
    """A function from tables of data to tables of summaries."""

    @abc.abstractmethod
    def __call__(self, x: Float[np.ndarray, "n dim_x"]) -> Float[np.ndarray, "n dim_s"]:
        """Return the summaries of every row."""

    @property
    @abc.abstractmethod
    def length(self) -> int | None:
        """How many numbers x has; None if any will do."""


class GivenSummary(AbstractSummary):
    """A function of the user's, from one data vector to one vector of summaries."""

    function: Callable = eqx.field(static=True)
    dim_x: int = eqx.field(static=True)

    @property
    def length(self):
        return self.dim_x

    def __call__(self, x):
        rows = [np.atleast_1d(np.asarray(self.function(row), float)) for row in np.asarray(x, float)]
        if len({row.shape for row in rows}) > 1 or rows[0].ndim != 1:
            shapes = sorted({str(row.shape) for row in rows})
            raise InputError(f"expected a summary that returns one vector of one length; got shapes {shapes}.")
        return np.stack(rows)


class Coordinates(AbstractSummary):
    """Some of the coordinates of x, as they are."""

    kept: tuple[int, ...] = eqx.field(static=True)
    dim_x: int = eqx.field(static=True)

    @property
    def length(self):
        return self.dim_x

    def __call__(self, x):
        return np.asarray(x, float)[:, list(self.kept)]


class Features(eqx.Module):
    """What a network sees of x: fixed features of the whole, and windows."""

    kind: str = eqx.field(static=True)  # of data: "vector", "series" or "set"
    row: int = eqx.field(static=True)  # how many numbers belong to one point in time, or to one element of a set
    kept: tuple[int, ...] = eqx.field(static=True)  # coordinates of a vector that are looked at
    centre: np.ndarray  # of every number of a row, or of every coordinate
    scale: np.ndarray  # likewise

    @classmethod
    def of(cls, kind: str, x: Float[np.ndarray, "n dim_x"], *, row: int, kept: tuple[int, ...] = ()) -> "Features":
        """Fit centres and scales to data."""
        columns = x[:, list(kept)] if kind == "vector" else x.reshape(-1, row)
        low, centre, high = np.quantile(columns, [0.25, 0.5, 0.75], axis=0)
        spread = (high - low) / 1.349  # 1.349: quartiles of N(0, 1) lie so far apart
        scale = np.where(spread > 1e-6 * columns.std(axis=0), spread, columns.std(axis=0))
        return cls(kind, row, kept, centre, np.where(scale > 0, scale, 1.0))

    def fixed(self, x: Float[np.ndarray, "n dim_x"]) -> Float[np.ndarray, "n feature"]:
        """Return the fixed features."""
        if self.kind == "vector":
            return np.arcsinh((x[:, list(self.kept)] - self.centre) / self.scale)  # heavy tails become light ones
        rows = (x.reshape(len(x), -1, self.row) - self.centre) / self.scale
        parts = [f for j in range(self.row) for f in (_of_series if self.kind == "series" else _of_set)(rows[:, :, j])]
        pairs = [(i, j) for i in range(self.row) for j in range(i)]
        parts += [np.mean(_standard(rows[:, :, i]) * _standard(rows[:, :, j]), axis=1) for i, j in pairs]
        return np.column_stack(parts)

    def windows(self, x: Float[np.ndarray, "n dim_x"]) -> Float[np.ndarray, "n k window"]:
        """Return pieces of a series, one after the other, or the elements of a set; nothing of vectors."""
        if self.kind == "vector":
            return np.zeros((len(x), 0, 0), np.float32)
        rows = np.arcsinh((x.reshape(len(x), -1, self.row) - self.centre) / self.scale).astype(np.float32)
        length = rows.shape[1]
        points = 1 if self.kind == "set" else min(length, max(WINDOW, -(-length // MOST_WINDOWS)))
        return rows[:, : length - length % points].reshape(len(x), length // points, -1)


def _standard(y: np.ndarray) -> np.ndarray:
    return (y - y.mean(axis=1, keepdims=True)) / (y.std(axis=1, keepdims=True) + TINY)


def _log(variance: np.ndarray) -> np.ndarray:
    return 0.5 * np.log(variance + TINY)


def _shape(y: Float[np.ndarray, "n time"]) -> list[np.ndarray]:
    """Return mean, log sd, skewness and log kurtosis."""
    z = _standard(y)
    return [np.arcsinh(y.mean(axis=1)), _log(y.var(axis=1)), np.cbrt((z**3).mean(axis=1)), _log((z**4).mean(axis=1))]


def _of_set(y: Float[np.ndarray, "n rows"]) -> list[np.ndarray]:
    return [*_shape(y), *np.arcsinh(np.quantile(y, LEVELS, axis=1))]


def _of_series(y: Float[np.ndarray, "n time"]) -> list[np.ndarray]:
    """Return moments of the whole, of increments and of segments, and the power in bands of the spectrum."""
    length = y.shape[1]
    parts = [*_shape(y), *_shape(np.diff(y, axis=1))[1:]]
    for segment in np.array_split(y, min(SEGMENTS, length // 2), axis=1):
        parts += [np.arcsinh(segment.mean(axis=1)), _log(segment.var(axis=1))]
    power = np.abs(np.fft.rfft(y - y.mean(axis=1, keepdims=True), axis=1)[:, 1:]) ** 2 / length
    edges = np.unique(np.geomspace(1, power.shape[1] + 1, BANDS + 1).round().astype(int)) - 1
    return parts + [_log(power[:, low:high].mean(axis=1)) for low, high in itertools.pairwise(edges)]


class SummaryBody(eqx.Module):
    """The trained part of a summary: one perceptron for all windows, averaged over them, and one for the whole.

    A window has so many numbers, 0 for none; `features` are fixed, and the summary has `size` numbers.
    """

    of_window: Mlp | None
    of_whole: Mlp

    def __init__(self, key: PRNGKeyArray, *, window: int, features: int, size: int, width: int):
        key_window, key_whole = jr.split(key)
        self.of_window = Mlp(key_window, window, POOLED, width=min(width, 32), depth=1) if window else None
        self.of_whole = Mlp(key_whole, features + POOLED * (window > 0), size, width=width, depth=2)

    def __call__(self, fixed: Float[Array, " feature"], windows: Float[Array, "k window"]) -> Float[Array, " size"]:
        """Return the summary of what `Features` made of one x."""
        if self.of_window is None:
            return self.of_whole(fixed)
        pooled = jnp.mean(swish(jax.vmap(self.of_window)(windows)), axis=0)
        return self.of_whole(jnp.concatenate([fixed, pooled]))


class NetworkSummary(AbstractSummary):
    """A trained network on features of x."""

    features: Features
    mean: np.ndarray  # of fixed features
    sd: np.ndarray
    body: SummaryBody
    dim_x: int = eqx.field(static=True)

    @property
    def length(self):
        return self.dim_x

    def seen(self, x: Float[np.ndarray, "n dim_x"]) -> tuple[Array, Array]:
        """Return what the network sees of every row."""
        fixed = np.clip((self.features.fixed(np.asarray(x, float)) - self.mean) / self.sd, -10.0, 10.0)
        return on_device(fixed), on_device(self.features.windows(np.asarray(x, float)))

    def __call__(self, x):
        parts = [_apply(self.body, *self.seen(part)) for part in np.array_split(x, -(-len(x) // ROWS_AT_ONCE))]
        return np.concatenate([np.asarray(part, float) for part in parts])


@eqx.filter_jit
def _apply(body: SummaryBody, fixed, windows) -> Float[Array, "n size"]:
    return jax.vmap(body)(fixed, windows)
