r"""Conditional Gaussians in closed form: linear and polynomial means, and Gaussian processes of theta.

`fit_means` regresses w on t, and its residuals on polynomials of t, with one covariance for all theta.  Every member of
an ensemble has its own training rows; the degree is chosen once for all of them, by the likelihood of the rows held out
from each.

`fit_processes` describes what the linear fit leaves, where simulations are few and data follow theta smoothly.
Residuals r of the linear fit have unit covariance.  Each direction y_k of them is a process, all with one kernel:

    y_k(t) = sqrt(s_k) f_k(t) + sqrt(n_k) noise,    f_k ~ GP(0, k),    k(t, t') = exp(-|(t - t') / l|^2 / 2).

1. Length scales l: those of the largest marginal likelihood of a few hundred rows.  For given l the eigenvectors of the
   kernel's matrix make the best ratios c_k = s_k / n_k a matter of a one-dimensional search, and n_k a mean of squares.
2. Directions: signal and noise have covariances that add up to I, so they have the same eigenvectors.  Those of the
   leave-one-out residuals are taken.
3. Weights of the features psi(t) (see `unle.models.Kernel`), from all training rows of a member.

All on the host, in double precision; processes with one thread: the matrices are small, and programs are compiled
meanwhile.
"""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from scipy.linalg import eigh
from threadpoolctl import threadpool_limits

from unle.compiling import on_device
from unle.models import GaussianProcess, Kernel, NoCorrection, PolynomialMean, monomial_count, monomials
from unle.train.rows import Splits, others
from unle.train.validation import simplest_as_good

RIDGE = 1e-3  # prior precision of standardised coefficients, against exactly collinear parameters
HIGHEST_DEGREE = 4
MOST_MONOMIALS = 600
ROWS_PER_MONOMIAL = 3  # a polynomial of more coefficients is not tried
MOST_PARAMETERS = 16  # with more, a few hundred rows say nothing about length scales
FEWEST_ROWS = 100
ROWS_FOR_SCALES = 256
CENTRES = 400
RANK = 192  # the most features
SMALLEST_EIGENVALUE = 1e-6  # of the kernel's matrix, against the largest; smaller ones are rounding
MOST_ROWS = 20_000  # that weights are fitted to: with more, features limit the fit rather than rows
RATIOS = np.logspace(-2, 6, 33)  # variance of the signal to that of the noise
SCALES = 0.05, 30.0  # the smallest and the largest length scale of standardised parameters
FIRST_STEPS, MORE_STEPS = 12, 6  # of the search for length scales, before and after the directions are known
HIGHEST_LEVERAGE = 0.99


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


class Processes(NamedTuple):
    """The processes of all members."""

    correction: GaussianProcess  # the processes, stacked along the leading axis
    # standardised residuals of all rows; leave-one-out residuals for training rows
    v: Float[np.ndarray, "member n data"]
    log_dets: Float[np.ndarray, "member held_out"]  # log |dv / dr| of the held-out rows of every member
    scores: Float[np.ndarray, "member held_out"]  # log-likelihood of r in each held-out row


def fit_processes(
    t: Float[np.ndarray, "n dim"], r: Float[np.ndarray, "member n data"], splits: Splits, *, one_shape: bool = False
) -> Processes | None:
    """Fit one process per member to residuals r of linear fits; None if there is no sign of a signal in them.

    With `one_shape`, features are filled up with zeros, so that fits to growing data compile once.
    """
    if t.shape[1] > MOST_PARAMETERS or splits.train.shape[1] < FEWEST_ROWS:
        return None
    rng = np.random.default_rng(0)
    train = [_some(rng, np.asarray(rows), MOST_ROWS) for rows in splits.train]
    with threadpool_limits(1):
        some = _some(rng, train[0], ROWS_FOR_SCALES)
        scales, evidence = _length_scales(t[some], r[0][some], steps=FIRST_STEPS)
        if evidence < t.shape[1] + r.shape[2]:  # nats, in all: noise alone has about as many
            return None
        centres = t[_some(rng, train[0], CENTRES)]
        kernel = _kernel(scales, centres)
        rotation = _directions(_Regression(kernel.features(t[train[0]])), r[0][train[0]], np.eye(r.shape[2]), times=3)
        scales, _ = _length_scales(t[some], r[0][some] @ rotation, start=scales, steps=MORE_STEPS)
        kernel = _kernel(scales, centres, fill=one_shape)
        psi = kernel.features(t)
        rotation = _directions(_Regression(psi[train[0]]), r[0][train[0]], rotation, times=2)
        members = [
            _member(kernel, psi, rotation, own, rows, np.asarray(held))
            for own, rows, held in zip(r, train, splits.held_out, strict=True)
        ]
    corrections, *rest = zip(*members, strict=True)
    return Processes(jax.tree.map(lambda *leaves: on_device(np.stack(leaves)), *corrections), *map(np.stack, rest))


def _some(rng: np.random.Generator, rows: np.ndarray, most: int) -> np.ndarray:
    return rng.permutation(rows)[:most]


def _member(kernel: "_Kernel", psi, rotation, r, train, held_out) -> Processes:
    """Return the process of one member."""
    regression = _Regression(psi[train])
    fit = regression.solve(r[train] @ rotation)
    own = psi @ regression.rotation
    unknown = np.maximum(1 - (own**2).sum(axis=1), 0)[:, None] + own**2 @ fit.remaining
    sd = np.sqrt(fit.noise * (1 + fit.ratio * unknown))
    v = (r @ rotation - own @ fit.weights) / sd
    v[train] = fit.left_out / fit.left_out_sd
    whitener = np.linalg.inv(np.linalg.cholesky(shrunk_covariance(v[train])))
    v = v @ whitener.T
    log_dets = np.log(np.diagonal(whitener)).sum() - np.log(sd[held_out]).sum(axis=1)
    features = Kernel(*map(on_device, (kernel.scales, kernel.centres, kernel.projection @ regression.rotation)))
    parts = rotation, fit.weights, fit.remaining, fit.noise, fit.ratio, whitener
    correction = GaussianProcess(features, *map(on_device, parts))
    return Processes(correction, v, log_dets, log_normal(v[held_out]) + log_dets)


class _Kernel(NamedTuple):
    """The kernel on the host; see `unle.models.Kernel`."""

    scales: np.ndarray
    centres: np.ndarray
    projection: np.ndarray

    def features(self, t: np.ndarray) -> np.ndarray:
        """Return psi(t) of every row."""
        return _squared_exponential(t / self.scales, self.centres / self.scales) @ self.projection


def _squared_exponential(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * a @ b.T
    return np.exp(-0.5 * np.maximum(squares, 0))


def _kernel(scales: np.ndarray, centres: np.ndarray, *, fill: bool = False) -> _Kernel:
    """Return features from the largest eigenvalues of the kernel's matrix at the centres."""
    values, vectors = eigh(_squared_exponential(centres / scales, centres / scales))
    values, vectors = values[::-1][:RANK], vectors[:, ::-1][:, :RANK]
    keep = values > SMALLEST_EIGENVALUE * values[0]
    projection = vectors[:, keep] / np.sqrt(values[keep])
    if fill:
        missing = CENTRES - len(centres), RANK - projection.shape[1]
        projection = np.pad(projection, ((0, missing[0]), (0, missing[1])))
        centres = np.pad(centres, ((0, missing[0]), (0, 0)))
    return _Kernel(scales, centres, projection)


class _Fit(NamedTuple):
    weights: np.ndarray  # posterior means
    remaining: np.ndarray  # posterior variances, as shares of the prior's
    noise: np.ndarray  # n_k
    ratio: np.ndarray  # c_k
    left_out: np.ndarray  # y of every row less its prediction from the other rows
    left_out_sd: np.ndarray  # the standard deviation of that, as predicted


class _Regression:
    """Bayesian regression on features that are turned to be uncorrelated over the rows."""

    def __init__(self, psi: np.ndarray):
        eigenvalues, self.rotation = eigh(psi.T @ psi)
        self.eigenvalues = np.maximum(eigenvalues, 0)
        self.features = psi @ self.rotation

    def solve(self, y: np.ndarray) -> _Fit:
        """Return the posterior of weights with variance c_k n_k, c_k and n_k of the largest marginal likelihood."""
        moments = self.features.T @ y
        explained = moments**2 / np.maximum(self.eigenvalues, 1e-12)[:, None]
        rest = np.maximum((y**2).sum(axis=0) - explained.sum(axis=0), 1e-9 * len(y))
        ratio, noise, _ = _best_ratios(self.eigenvalues, explained, rest, len(y))
        remaining = 1 / (ratio * self.eigenvalues[:, None] + 1)
        leverage = np.minimum(self.features**2 @ (ratio * remaining), HIGHEST_LEVERAGE)
        weights = ratio * remaining * moments
        left_out = (y - self.features @ weights) / (1 - leverage)
        return _Fit(weights, remaining, noise, ratio, left_out, np.sqrt(noise / (1 - leverage)))


def _directions(regression: _Regression, r: np.ndarray, rotation: np.ndarray, *, times: int) -> np.ndarray:
    """Return the eigenvectors of the covariance of leave-one-out residuals, which depend on directions in turn."""
    for _ in range(times):
        left_out = regression.solve(r @ rotation).left_out @ rotation.T
        rotation = eigh(left_out.T @ left_out)[1]
    return rotation


def _best_ratios(values, explained, rest, n: int):
    """Return c_k, n_k and the log marginal likelihood of every direction above that of noise alone."""
    spread = values * RATIOS[:, None] + 1
    noise = ((1 / spread) @ explained + rest) / n
    evidence = -0.5 * (n * np.log(noise) + np.log(spread).sum(axis=1)[:, None])
    best, every = evidence.argmax(axis=0), np.arange(noise.shape[1])
    of_noise = -0.5 * n * np.log((explained.sum(axis=0) + rest) / n)
    return RATIOS[best], noise[best, every], evidence[best, every] - of_noise


def _length_scales(
    t: np.ndarray, y: np.ndarray, *, start: np.ndarray | None = None, steps: int
) -> tuple[np.ndarray, float]:
    r"""Return the length scales of the largest marginal likelihood, and how far it is above that of noise alone.

    With K = U diag(d) U' and the best c_k, n_k, its gradient in K is

        1/2 sum_k s_k (a_k a_k' - (s_k K + n_k I)^-1),    a_k = (s_k K + n_k I)^-1 y_k.

    A weak prior around long scales bounds those of parameters without influence.
    """
    squares = np.square(t.T[:, :, None] - t.T[:, None, :])
    middle = np.log(2 * np.sqrt(t.shape[1]))

    def loss(log_scales):
        precision = np.exp(-2 * log_scales)
        kernel = np.exp(-0.5 * np.tensordot(precision, squares, 1))
        values, vectors = eigh(kernel)
        values = np.maximum(values, 0)
        turned = vectors.T @ y
        ratio, noise, evidence = _best_ratios(values, turned**2, 0.0, len(y))
        signal = ratio * noise
        variances = signal * values[:, None] + noise
        a = vectors @ (turned / variances)
        gradient = 0.5 * ((a * signal) @ a.T - (vectors * (signal / variances).sum(axis=1)) @ vectors.T) * kernel
        slopes = np.tensordot(squares, gradient, 2) * precision
        away = log_scales - middle
        return 0.125 * away @ away - evidence.sum(), 0.25 * away - slopes

    from scipy.optimize import minimize  # takes long to import

    first = np.zeros(t.shape[1]) + np.log(2.0) if start is None else np.log(start)
    bounds = [tuple(np.log(SCALES))] * t.shape[1]
    optimum = minimize(loss, first, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": steps})
    return np.exp(optimum.x), -float(optimum.fun)
