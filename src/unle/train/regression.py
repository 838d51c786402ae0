r"""Gaussians with one covariance, in closed form: a linear mean, then polynomials as far as they pay.

On the host, in double precision.  Every member of an ensemble has its own training rows; the degree is chosen once for
all of them, by the likelihood of the rows held out from each.
"""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from unle.models import NoCorrection, PolynomialMean, monomial_count, monomials
from unle.space.host_device import on_device
from unle.train.rows import Splits, others
from unle.train.validation import simplest_as_good

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
