r"""Gaussian processes of theta, in closed form: means where simulations are few and data follow theta smoothly.

Residuals r of the linear fit have unit covariance.  Each direction y_k of them is a process, all with one kernel:

    y_k(t) = sqrt(s_k) f_k(t) + sqrt(n_k) noise,    f_k ~ GP(0, k),    k(t, t') = exp(-|(t - t') / l|^2 / 2).

1. Length scales l: those of the largest marginal likelihood of a few hundred rows.  For given l the eigenvectors of the
   kernel's matrix make the best ratios c_k = s_k / n_k a matter of a one-dimensional search, and n_k a mean of squares.
2. Directions: signal and noise have covariances that add up to I, so they have the same eigenvectors.  Those of the
   leave-one-out residuals are taken.
3. Weights of the features psi(t) (see `unle.models.Kernel`), from all training rows of a member.

On the host, in double precision, with one thread: the matrices are small, and programs are compiled meanwhile.
"""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from scipy.linalg import eigh
from threadpoolctl import threadpool_limits

from unle.models import GaussianProcess, Kernel
from unle.space.host_device import on_device
from unle.train.gaussian_fits import log_normal, shrunk_covariance
from unle.train.rows import Splits

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
