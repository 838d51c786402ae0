r"""Conditional Gaussians: linear and polynomial means in closed form, and networks of theta that bend the linear fit.

`fit_means` regresses w on t, and its residuals on polynomials of t, with one covariance for all theta.  On the
host, in double precision.  Every member of an ensemble has its own training rows; the degree is chosen once for all of
them, by the likelihood of the rows held out from each.

`train_networks` trains networks that correct mean and covariance of the linear fit, by maximum likelihood.
"""

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from unle.compiling import LARGE_BATCH_OPTIONS, large_program
from unle.models import (
    ConditionalGaussian,
    Mlp,
    NeuralCorrection,
    NoCorrection,
    PolynomialMean,
    monomial_count,
    monomials,
)
from unle.space.host_device import keys, on_device, split
from unle.train.loop import Best, Fit, Look, Patience, Weights, adamw, run, take_chunk
from unle.train.rows import Rows, Splits, others
from unle.train.validation import is_better, simplest_as_good

if TYPE_CHECKING:
    from unle.train.base_training import GaussianTraining

SMALLEST_IMPROVEMENT = 0.005  # nats; a fit that improves by less for long is over
EARLY_SHARE = 0.1  # share of the training after which networks are compared with their rival
RIDGE = 1e-3  # prior precision of standardised coefficients, against exactly collinear parameters
HIGHEST_DEGREE = 4
MOST_MONOMIALS = 600
ROWS_PER_MONOMIAL = 3  # a polynomial of more coefficients is not tried


class Mean(NamedTuple):
    """The linear fit r = P (w - b - A' t) of every member, stacked along the leading axis."""

    intercept: Float[np.ndarray, "member data"]
    slope: Float[np.ndarray, "member dim data"]
    whitener: Float[np.ndarray, "member data data"]

    @property
    def log_volumes(self) -> Float[np.ndarray, "member 1"]:
        """Log det P of every member."""
        return np.log(np.diagonal(self.whitener, axis1=1, axis2=2)).sum(axis=1)[:, None]


class Means(NamedTuple):
    """Closed forms of every member, stacked along the leading axis."""

    linear: Mean  # the linear fits
    correction: NoCorrection | PolynomialMean  # the polynomials that correct them
    linear_scores: Float[np.ndarray, "member held_out"]  # log-likelihood of each held-out row by the linear fits alone
    scores: Float[np.ndarray, "member held_out"]  # by both


def fit_means(t: np.ndarray, w: np.ndarray, splits: Splits, *, one_shape: bool = False) -> Means:
    """Fit linear means, and the polynomials that correct them.

    With `one_shape`, polynomials are filled up with zeros to the highest degree, so that fits to growing data compile
    once.
    """
    products = _Products.of(np.asarray(t, float), np.asarray(w, float), most_rows=splits.train.shape[1])
    rows = zip(np.asarray(splits.train), np.asarray(splits.held_out), strict=True)
    fits = [_fit_member(products, train, held_out) for train, held_out in rows]
    linear = Mean(*map(np.stack, zip(*(fit.linear for fit in fits), strict=True)))
    rungs = zip(*(fit.rungs for fit in fits), strict=True)
    chosen = simplest_as_good([np.concatenate([rung.scores for rung in members]) for members in rungs])
    scores = [np.stack([fit.rungs[i].scores for fit in fits]) + linear.log_volumes for i in (0, chosen)]
    degree = highest_degree(t.shape[1]) if one_shape else chosen + 1
    if degree == 1:
        return Means(linear, NoCorrection(), *scores)
    members = [_bend(fit, fit.rungs[chosen], degree) for fit in fits]
    return Means(linear, jax.tree.map(lambda *leaves: on_device(np.stack(leaves)), *members), *scores)


def _bend(fit: "_Member", rung: "_Rung", degree: int) -> PolynomialMean:
    """Return one member's polynomial, filled up with zeros to the given degree."""
    coefficients = np.zeros((monomial_count(len(fit.low), degree), rung.coefficients.shape[1]))
    coefficients[: len(rung.coefficients)] = rung.coefficients
    low, high, coefficients, whitener = map(on_device, (fit.low, fit.high, coefficients, rung.whitener))
    return PolynomialMean(low, high, coefficients, whitener, degree)


def highest_degree(dim: int) -> int:
    """Return the highest degree for which there are not too many monomials."""
    degrees = range(1, HIGHEST_DEGREE + 1)
    return max(degree for degree in degrees if degree == 1 or monomial_count(dim, degree) <= MOST_MONOMIALS)


class _Rung(NamedTuple):
    coefficients: np.ndarray  # (monomial, k)
    whitener: np.ndarray  # (k, k)
    scores: np.ndarray  # log-likelihood of each held-out row


class _Member(NamedTuple):
    linear: Mean  # of this member alone
    low: np.ndarray  # the smallest parameters that it was trained on
    high: np.ndarray
    rungs: list[_Rung]


class _Products(NamedTuple):
    """Monomials of all rows and their products, from which those of a member's training rows are a subtraction away."""

    t: np.ndarray
    w: np.ndarray
    degree: int
    design: np.ndarray  # phi(t)
    gram: np.ndarray  # phi' phi
    moments: np.ndarray  # phi' w

    @classmethod
    def of(cls, t: np.ndarray, w: np.ndarray, *, most_rows: int) -> "_Products":
        """Take all monomials that so many rows allow."""
        degree = highest_degree(t.shape[1])
        while monomial_count(t.shape[1], degree) * ROWS_PER_MONOMIAL > most_rows:
            degree -= 1
        design = monomials(t, max(degree, 1))
        return cls(t, w, degree, design, design.T @ design, design.T @ w)

    def of_rows(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return phi' phi and phi' w of some rows."""
        rest = others(len(self.t), rows)
        if len(rows) < len(rest):
            return self.design[rows].T @ self.design[rows], self.design[rows].T @ self.w[rows]
        left = self.design[rest]
        return self.gram - left.T @ left, self.moments - left.T @ self.w[rest]


def _fit_member(all_rows: _Products, train: np.ndarray, held_out: np.ndarray) -> _Member:
    """Fit the linear mean, and its residuals by polynomials of every degree that the rows allow; degree one is r."""
    t, degree = all_rows.t, all_rows.degree
    own = np.asfortranarray(t[train])  # the smallest of a column is found ten times sooner where it lies together
    low, high = own.min(axis=0), own.max(axis=0)
    linear = Mean(*linear_fit(own, all_rows.w[train]))
    r = (all_rows.w - linear.intercept - t @ linear.slope) @ linear.whitener.T
    k = r.shape[1]
    rungs = [_Rung(np.zeros((1, k)), np.eye(k), log_normal(r[held_out]))]
    if degree < 2:
        return _Member(linear, low, high, rungs)
    gram, moments = all_rows.of_rows(train)
    # r is linear in w, 1 and t, and the last two are monomials: phi' r needs no other pass over the rows
    line = np.vstack([linear.intercept, linear.slope])
    moments = (moments - gram[:, : len(line)] @ line) @ linear.whitener.T
    outside = monomials(np.clip(t[held_out], low, high), degree)
    for p in range(2, degree + 1):
        q = monomial_count(t.shape[1], p)
        coefficients = np.linalg.solve(gram[:q, :q] + RIDGE * np.eye(q), moments[:q])
        whitener = _whitener((r - all_rows.design[:, :q] @ coefficients)[train], used=q)
        s = (r[held_out] - outside[:, :q] @ coefficients) @ whitener.T
        rungs.append(_Rung(coefficients, whitener, log_normal(s) + np.log(np.diagonal(whitener)).sum()))
    return _Member(linear, low, high, rungs)


def linear_fit(t: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Regress w on t; return b, A and P, which whitens the residuals."""
    design = monomials(t, 1)
    coefficients = np.linalg.solve(design.T @ design + RIDGE * np.eye(design.shape[1]), design.T @ w)
    return coefficients[0], coefficients[1:], _whitener(w - design @ coefficients, used=design.shape[1])


def _whitener(residual: np.ndarray, *, used: int) -> np.ndarray:
    """Return the inverse Cholesky factor of the residuals' covariance, after `used` coefficients were fitted."""
    n = len(residual)
    covariance = shrunk_covariance(residual) * n / max(n - used, 1)
    return np.linalg.inv(np.linalg.cholesky(covariance))


def shrunk_covariance(residual: np.ndarray) -> np.ndarray:
    """Shrink the residuals' correlations towards zero by the amount of Ledoit and Wolf (2004), variances kept.

    Shrinking correlations rather than covariances does not mix coordinates of different size.
    """
    n, k = residual.shape
    sd = np.sqrt(np.mean(residual**2, axis=0)) + 1e-6  # a residual of exactly zero would not be invertible
    z = residual / sd
    sample = z.T @ z / n
    off = sample - np.diag(np.diagonal(sample))
    variance = ((z**2).T @ (z**2) / n - sample**2) / n  # of each sample correlation
    noise, signal = np.sum(variance) - np.trace(variance), np.sum(off**2)
    shrinkage = 1.0 if signal <= 0 else min(1.0, max(0.0, noise / signal))
    correlation = sample - shrinkage * off + 1e-8 * np.eye(k)
    return correlation * sd[:, None] * sd[None, :]


def log_normal(s: np.ndarray) -> np.ndarray:
    """Return the standard normal log-density of every row."""
    return -0.5 * np.sum(s**2, axis=1) - 0.5 * s.shape[1] * np.log(2 * np.pi)


class Start(NamedTuple):
    """What networks begin with, and have to beat: linear fits, and their log-likelihood of each held-out row."""

    linear: Mean
    scores: Float[np.ndarray, "member held_out"]


class Rival(NamedTuple):
    """Another fit, which networks are compared with after a part of their training."""

    scores: Float[np.ndarray, "member held_out"]  # its log-likelihood of each held-out row
    # of the rival's gain over the start, which networks must have by then; more than all of it if None, and beyond
    # doubt
    share: float | None = None

    def wins(self, start: Float[np.ndarray, "member held_out"], early: Float[np.ndarray, "member held_out"]) -> bool:
        """Return whether networks that have come so far are to be given up."""
        if self.share is None:
            return not is_better(early, self.scores)
        return bool(np.mean(early - start) < self.share * np.mean(self.scores - start))


class Networks(NamedTuple):
    """Trained networks."""

    net: Mlp  # of every member, stacked; zero if nothing was better than the start
    scores: Float[np.ndarray, "member held_out"]  # log-likelihood of each held-out row
    early: Float[np.ndarray, "member held_out"]  # the same after a part of the training
    finished: bool = True  # False if they were given up then


def train_networks(
    key: PRNGKeyArray, start: Start, rows: Rows, *, settings: "GaussianTraining", rival: Rival | None = None
) -> Networks:
    """Train one network per member, to correct linear fits.

    Settings have steps and batch for so many rows (`GaussianTraining.for_rows`).  Networks that are behind a rival
    after a part of their training are given up.
    """
    key_init, key_train = split(key, 2)
    bases, fit = _start(key_init, start, rows, settings)

    def chunk(state: _Progress, key: PRNGKeyArray, number: int) -> tuple[_Progress, Look]:
        data = state.rows.renewed(settings.chunk * batch) if number else state.rows
        fit = _chunk(state.fit, bases, *data.table, keys(key, rows.members), settings)
        score, early, is_behind = float(np.mean(np.asarray(fit.best.score))), state.early, False
        if early is None and (number + 1) * settings.chunk >= EARLY_SHARE * settings.iterations:
            early = np.asarray(fit.best.rows)[:, : rows.n_held_out]
            is_behind = rival is not None and rival.wins(start.scores, early)
        look = Look(score, f"held-out log-likelihood {score:.2f}", is_over=is_behind)
        return _Progress(fit, data, early, is_behind), look

    batch, chunks = _batch(settings), split(key_train, -(-settings.iterations // settings.chunk))
    patience, title = Patience(settings.patience, SMALLEST_IMPROVEMENT), "Fitting the Gaussian base"
    end = run(chunk, _Progress(fit, rows), chunks, steps=settings.chunk, patience=patience, title=title).state
    scores = np.asarray(end.fit.best.rows)[:, : rows.n_held_out]
    return Networks(end.fit.best.trained, scores, scores if end.early is None else end.early, not end.is_behind)


class _Progress(NamedTuple):
    fit: Fit
    rows: Rows  # a window on them that changes
    early: Float[np.ndarray, "member held_out"] | None = None
    is_behind: bool = False  # of its rival


def _batch(settings: "GaussianTraining") -> int:
    assert settings.batch is not None  # `for_rows` has chosen one
    return settings.batch


def _optimiser(settings: "GaussianTraining") -> optax.GradientTransformation:
    assert settings.weight_decay is not None  # `for_rows` has chosen one
    adam = adamw(settings.learning_rate, settings.iterations, weight_decay=settings.weight_decay)
    return optax.flatten(adam)  # one long vector is quicker to compile


def _scores(net: Mlp, base: ConditionalGaussian, t, w) -> Float[Array, " row"]:
    model = eqx.tree_at(lambda b: b.correction.net, base, net)
    return jax.vmap(model.log_density)(t, w)


def _start(
    key: PRNGKeyArray, start: Start, data: Rows, settings: "GaussianTraining"
) -> tuple[ConditionalGaussian, Fit]:
    """Return the linear fit with networks that are nearly zero, and its scores: the networks have to beat them.

    Everything is made on the host: there is nothing to compile.
    """
    dtype, (members, length) = data.t.dtype, data.splits.held_out.shape
    nets = settings.nets(key, data.t.shape[1], data.w.shape[-1], members=members)
    linear = (on_device(part, dtype) for part in start.linear)
    bases = bend(nets, *linear)
    rows = on_device(np.stack([np.resize(row, length) for row in start.scores]), dtype)
    optimiser = _zeros(jax.eval_shape(eqx.filter_vmap(_optimiser(settings).init), nets))  # Adam starts from zeros
    score = on_device(start.scores.mean(axis=1), dtype)
    return bases, Fit(Weights(nets, optimiser, nets), Best(_zeros(nets), score, rows))


@eqx.filter_jit
@eqx.filter_vmap
def bend(net: Mlp, offset, slope, whitener) -> ConditionalGaussian:
    """Return linear fits that networks correct."""
    return ConditionalGaussian(offset, slope, whitener, NeuralCorrection(net))


def _zeros(tree):
    return jax.tree.map(lambda leaf: on_device(np.zeros(leaf.shape), leaf.dtype), tree)


@partial(large_program, options=LARGE_BATCH_OPTIONS)
def _chunk(state: Fit, bases, t, w, splits: Splits, keys, settings: "GaussianTraining") -> Fit:
    batch = _batch(settings)

    def one_member(state: Fit, base, w, train, held_out, key) -> Fit:
        def loss(net, numbers):
            rows = train[numbers]
            return -jnp.mean(_scores(net, base, t[rows], w[rows]))

        def score(net):
            return _scores(net, base, t[held_out], w[held_out])

        # All random numbers at once: every call of the generator takes a while to compile.
        numbers = jr.bits(key, (settings.chunk * batch,)).reshape(-1, batch) % train.shape[0]
        return take_chunk(_optimiser(settings), state, loss, numbers, score, average=settings.average)[0]

    own = None if w.ndim == t.ndim else 1  # the axis of members, if each has data of its own
    each = eqx.filter_vmap(one_member, in_axes=(0, 0, own, 0, 0, 0))
    return each(state, bases, w, splits.train, splits.held_out, keys)
