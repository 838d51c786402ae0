r"""Fit autoregressive bases, if they describe the data better than the bases there are.

Data of many coordinates are often a series, or readings that depend on each other.  A network that gives all of them at
once has a covariance to learn for every theta, from as many examples as there are simulations.  A network that gives
one after the other has k times as many (`unle.models.autoregressive`).

Where residuals of the other bases have lighter tails than a normal, noise may end sharply.  Then four more are tried,
whose components may end sharply, too.

Four designs run a short race: the network sees the past or does not, marginal transforms are undone or are not (where
there are any).  The best one is trained to the end, unless it is far behind the other bases by then, and kept if the
likelihood of held-out rows is clearly higher.

Discrete data of a few values, of any length, get such bases too (`fit_to_cells`): these learn the probabilities of
cells as they are, where a density of spread data has to follow every step, and to fall off at once where data end.
"""

from dataclasses import replace
from functools import partial
from itertools import product
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from unle.compiling import LARGE_BATCH_OPTIONS, large_program, on_device
from unle.models import AbstractBase, Autoregressive, Mlp
from unle.space.standardise import Standardiser
from unle.train.closed_form_fits import linear_fit
from unle.train.gaussian_training import Rival
from unle.train.loop import LARGEST_NORM, Look, Patience, Weights, run, take_steps
from unle.train.noise_fit import ends_early, fit_noise
from unle.train.rows import Rows, Splits, step_count
from unle.train.validation import base_scores, is_better

SHORTEST_SERIES, LONGEST_SERIES = 8, 256  # numbers in data that are tried whatever their residuals are
FEWEST_ROWS = 300
RACE_STEPS, CHUNK = 300, 100
BATCH = 512  # pairs of a simulation and a position
AVERAGE = 0.98
# Shares of the other bases' gain over no knowledge, below which the following is given up:
SHARE_OF_RACE = 0.5  # training to the end, after the race
SHARE_OF_SHORT_RACE = 0.8  # the same for short data, of which nearly all is learned in the race
SHARE_BEFORE_ENDS = 0.9  # components that end sharply, after normals: those gain a few tenths of a nat per number
CLEARLY = 2.0  # standard errors by which autoregressive bases must be better


class Settings(NamedTuple):
    """How large the network is, and how it is trained."""

    width: int
    depth: int
    steps: int
    learning_rate: float
    weight_decay: float
    patience: float  # chunks without improvement


OF_POINTS = Settings(width=32, depth=3, steps=1200, learning_rate=5e-3, weight_decay=1e-3, patience=float("inf"))
OF_ENDS = OF_POINTS._replace(learning_rate=1e-2)  # places of ends are asked for more precisely than means
# With the settings of points, held-out counts of an epidemic (SIR, 1,000 and 10,000 simulations) are less likely by 1.1
# and .6 nats.  Densities gained likelihood by these, too, but posteriors of smooth series became worse.
OF_CELLS = Settings(width=64, depth=5, steps=4000, learning_rate=1e-2, weight_decay=1e-2, patience=8)


class Trained(NamedTuple):
    """What an optimiser changes.

    Least squares count all rows alike.  Where the noise depends on theta, rows with little of it say most: so the
    linear fit is trained too, in units of its own residuals.
    """

    net: Mlp  # the network
    intercept: Float[Array, "*member data"]  # added to that of the linear fit
    slope: Float[Array, "*member dim data"]  # likewise
    log_spread: Float[Array, "*member data"]  # added to the logarithm of its spread

    def of(self, linear: Autoregressive) -> Autoregressive:
        """Return the base of one member, or of all of them."""
        spread = linear.spread
        return replace(
            linear,
            net=self.net,
            intercept=linear.intercept + spread * self.intercept,
            slope=linear.slope + spread[..., None, :] * self.slope,
            spread=spread * jnp.exp(self.log_spread),
        )


class Design(NamedTuple):
    """What is fitted."""

    # data in the units of the fit: standardised data, or the same without their marginal transforms; or their cells
    y: Float[Array, "n *cell data"]
    log_det: Float[np.ndarray, " n"]  # log |det dy/dw| of every row
    standardiser: Standardiser | None  # that undoes transforms; None if there is nothing to undo
    sees_past: bool  # whether the network sees the past
    has_ends: bool = False  # whether densities may end sharply


def autoregressive_or(
    bases: AbstractBase,
    key: PRNGKeyArray,
    rows: Rows,
    *,
    standardiser: Standardiser,
    capacity: int | None = None,
    shortest: int = SHORTEST_SERIES,
    gains: Float[np.ndarray, "member deciding"] | float = 0.0,
) -> AbstractBase:
    """Return autoregressive bases if they are clearly better, or else the bases that there are.

    These are compared with the noise that they may be given later, and with `gains`: those of energies on them, for the
    rows that decide.  Data of fewer than `shortest` numbers are not tried.  For `capacity` see
    `AbstractBaseTraining.fit`.
    """
    n, k = rows.w.shape
    if not shortest <= k <= LONGEST_SERIES or n < FEWEST_ROWS or rows.stream is not None:
        return bases
    rows = rows.padded(capacity)
    has_ends, noisy = ends_early(bases, rows), fit_noise(bases, rows)
    to_beat = np.asarray(base_scores(bases, *rows.table), float)[:, : rows.n_held_out]
    looked_at = slice(None) if isinstance(gains, float) else rows.deciding
    of_noise = 0.0 if noisy is None else noisy.gain[:, looked_at]
    to_beat = to_beat[:, looked_at] + (of_noise if np.mean(of_noise) > np.mean(gains) else gains)
    unknowing = _unconditional(rows)[:, looked_at]
    share = SHARE_OF_RACE if k >= SHORTEST_SERIES else SHARE_OF_SHORT_RACE
    rng = np.random.default_rng(np.asarray(jr.key_data(key)).tolist())
    designs = _designs(rows.w, standardiser)
    kinds = [(designs, OF_POINTS)]
    if has_ends:  # trained to the end: several modes, which look alike in a race, are better described by normals
        kinds.append(([design._replace(has_ends=True) for design in designs], OF_ENDS))
    for designs, settings in kinds:
        raced = [_train(rng, rows, design, settings, steps=RACE_STEPS)[1][:, looked_at] for design in designs]
        best = int(np.argmax([np.nan_to_num(scores.mean(), nan=-np.inf) for scores in raced]))
        if Rival(to_beat, share=share).wins(unknowing, raced[best]):
            break
        fitted, scores = _train(rng, rows, designs[best], settings, steps=step_count(settings.steps, n))
        if is_better(scores[:, looked_at], to_beat, errors=CLEARLY):
            bases, to_beat = fitted, scores[:, looked_at]
        elif Rival(to_beat, share=SHARE_BEFORE_ENDS).wins(unknowing, scores[:, looked_at]):
            break
    return bases


def fit_to_cells(
    key: PRNGKeyArray, rows: Rows, cells: Float[Array, "n 5 data"], standardiser: Standardiser
) -> tuple[Autoregressive, Float[np.ndarray, "member held_out"]]:
    """Fit bases to the cells of discrete data; return them, and the log of the mean density over held-out cells.

    `cells` are those of `rows.w` (`unle.space.XSpace.cell`), which were standardised so.
    """
    rng = np.random.default_rng(np.asarray(jr.key_data(key)).tolist())
    designs = _designs(cells, standardiser)
    raced = [_train(rng, rows, design, OF_CELLS, steps=RACE_STEPS)[1][:, rows.stopping] for design in designs]
    best = int(np.argmax([np.nan_to_num(scores.mean(), nan=-np.inf) for scores in raced]))
    return _train(rng, rows, designs[best], OF_CELLS, steps=step_count(OF_CELLS.steps, len(cells)))


def _designs(w: Float[Array, "n *cell data"], standardiser: Standardiser) -> list[Design]:
    """Return what may be tried, for points or for cells."""
    units = [(w, np.zeros(len(w)), None)]
    own = jax.tree.map(lambda leaf: leaf[: w.shape[-1]], standardiser)
    if any(name != "identity" for name in own.marginals.names()):
        y, log_det = _without_transforms(own, w)
        units.append((y, -np.asarray(log_det, float), own))
    return [Design(*unit, sees_past) for unit, sees_past in product(units, (False, True))]


@eqx.filter_jit  # the transforms are dozens of small programs otherwise
def _without_transforms(
    own: Standardiser, w: Float[Array, "n *cell data"]
) -> tuple[Float[Array, "n *cell data"], Float[Array, " n"]]:
    """Return raw units of the data, and log |det dw/dy| of every row."""
    y = jax.vmap(own.inverse)(w) if w.ndim == 2 else w.at[:, :3].set(jax.vmap(jax.vmap(own.inverse))(w[:, :3]))
    return y, jax.vmap(own.log_det)(y if w.ndim == 2 else y[:, 1])


def _train(
    rng: np.random.Generator, rows: Rows, design: Design, settings: Settings, *, steps: int
) -> tuple[Autoregressive, Float[np.ndarray, "member held_out"]]:
    """Train one network per member; return the best bases on the way, and their scores of held-out rows.

    Bases of cells are the best by the held-out rows that do not decide what is kept.
    """
    t, splits = rows.t, rows.splits
    bases = _untrained(rng, t, splits, design, settings)
    (members, size), k = splits.train.shape, design.y.shape[-1]
    log_det = design.log_det[np.asarray(splits.held_out)[:, : rows.n_held_out]]

    looked_at = rows.stopping if design.y.ndim == 3 else slice(None)

    def chunk(state: tuple, number: int, _: int) -> tuple[tuple, Look]:
        weights, best, best_scores = state
        pairs = on_device(rng.integers([size, k], size=(members, CHUNK, BATCH, 2)), np.int32)
        done = (number * CHUNK + np.arange(CHUNK)) / steps
        rates = on_device(settings.learning_rate * 0.5 * (1 + np.cos(np.pi * done)))
        weights = _chunk(weights, bases, t, design.y, splits.train, pairs, rates, settings.weight_decay)
        average = weights.average.of(bases)
        scores = np.asarray(_scores(average, t, design.y, splits), float)[:, : rows.n_held_out] + log_det
        score = float(scores[:, looked_at].mean())
        best, best_scores = (average, scores) if score > best_scores[:, looked_at].mean() else (best, best_scores)
        return (weights, best, best_scores), Look(score, f"held-out log-likelihood {score:.2f}")

    zeros = (on_device(np.zeros(part.shape)) for part in (bases.intercept, bases.slope, bases.spread))
    trained = Trained(bases.net, *zeros)
    shapes = jax.eval_shape(eqx.filter_vmap(_optimiser(settings.weight_decay).init), trained)
    optimiser = jax.tree.map(lambda leaf: on_device(np.zeros(leaf.shape), leaf.dtype), shapes)  # Adam starts from zeros
    begun = Weights(trained, optimiser, trained)
    first = begun, bases, np.full(log_det.shape, -np.inf)
    patience, title = Patience(settings.patience), "Fitting an autoregressive base"
    _, best, scores = run(chunk, first, range(steps // CHUNK), steps=CHUNK, patience=patience, title=title).state
    same = jax.tree.map(lambda leaf: on_device(np.stack([leaf] * members), leaf.dtype), design.standardiser)
    return replace(best, standardiser=same), scores


def _untrained(rng: np.random.Generator, t, splits: Splits, design: Design, settings: Settings) -> Autoregressive:
    """Return the linear fit of every coordinate by itself, with networks that are nearly zero; in units of y."""
    t, y = np.asarray(t, float), np.asarray(design.y if design.y.ndim == 2 else design.y[:, 1], float)
    members, fits = len(splits.train), []
    for rows in np.asarray(splits.train):
        intercept, slope, _ = linear_fit(t[rows], y[rows])
        fits.append((intercept, slope, (y[rows] - intercept - t[rows] @ slope).std(axis=0)))
    intercept, slope, spread = (on_device(np.stack(part)) for part in zip(*fits, strict=True))
    inputs, outputs = Autoregressive.sizes(t.shape[1], has_ends=design.has_ends)
    key = jr.key(int(rng.integers(2**31)))
    sizes = {"width": settings.width, "depth": settings.depth}
    net = Mlp.stacked(key, members, inputs, outputs, output_scale=0.01, **sizes)
    return Autoregressive(intercept, slope, spread, net, on_device(np.full(members, float(design.sees_past))))


def _optimiser(weight_decay: float) -> optax.GradientTransformation:
    """Return Adam with a learning rate of one: steps are scaled by that of the moment, so one program serves all."""
    network = lambda trained: trained._replace(intercept=False, slope=False, log_spread=False, net=True)  # noqa: E731
    adam = optax.adamw(1.0, weight_decay=weight_decay, mask=network)
    return optax.chain(optax.clip_by_global_norm(LARGEST_NORM), adam)


@partial(large_program, options=LARGE_BATCH_OPTIONS)
def _chunk(
    weights: Weights, bases, t, y, train, pairs: Int[Array, "member step batch 2"], rates, weight_decay: float
) -> Weights:
    def one_member(weights: Weights, base: Autoregressive, train, pairs):
        def loss(trained: Trained, pairs):
            model, rows, s = trained.of(base), train[pairs[:, 0]], pairs[:, 1]
            if y.ndim == 3:  # a cell's density is in units of y
                return -jnp.mean(jax.vmap(model.log_cell_conditional)(t[rows], y[rows], s) - trained.log_spread[s])
            r = jax.vmap(lambda t, y: model.residuals(t, y)[0])(t[rows], y[rows])
            return -jnp.mean(jax.vmap(model.log_conditional)(t[rows], r, s) - trained.log_spread[s])

        return take_steps(_optimiser(weight_decay), weights, loss, pairs, average=AVERAGE, rates=rates)[0]

    return eqx.filter_vmap(one_member)(weights, bases, train, pairs)


@eqx.filter_jit
def _scores(bases: Autoregressive, t, y, splits: Splits) -> Float[Array, "member held_out"]:
    if y.ndim == 2:
        return base_scores(bases, t, y, splits)

    def of_member(base: Autoregressive, held_out):
        return jax.vmap(base.log_cell_density)(t[held_out], y[held_out])

    return eqx.filter_vmap(of_member)(bases, splits.held_out)


def _unconditional(rows: Rows) -> Float[np.ndarray, "member held_out"]:
    """Return scores of a standard normal that knows nothing of theta."""
    held_out = np.asarray(rows.w, float)[np.asarray(rows.splits.held_out)[:, : rows.n_held_out]]
    return -0.5 * np.square(held_out).sum(axis=2) - 0.5 * held_out.shape[2] * np.log(2 * np.pi)
