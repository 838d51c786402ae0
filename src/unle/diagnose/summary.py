r"""The answer in numbers and files: location, intervals, dependence, evidence, conditional densities, exports.

Two kinds of interval are given.  The equal-tailed one leaves 2.5 % on either side; the highest-density one is the
shortest with the content, and the better of the two for skewed posteriors.  For several modes neither is good:
plot the draws.

**Conditional posteriors** are those of two parameters at a time, all others held at one point.  Marginals of many
parameters can be wide although every single one is pinned down once the others are known.  The conditional density
q(theta_i, theta_j | theta_rest = centre, x_o) shows this, and its correlation says how a change of one parameter can be
made up for by another.

Reference: Goncalves et al., "Training deep neural density estimators to identify mechanistic models of neural
dynamics", 2020, which calls it compensation between parameters.
"""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from unle.errors import InputError, StoreError
from unle.posterior import Draws, Posterior
from unle.progress import progress

CONTENT = 0.95
GRID_POINTS = 40  # per axis
POINTS_AT_ONCE = 8000
MOST_PARAMETERS = 40  # parameters


@dataclass(frozen=True)
class Summary:
    """What was learned about every parameter."""

    names: tuple[str, ...]  # of the parameters
    mean: Float[np.ndarray, " dim"]  # posterior mean; sd and median are those of the posterior too
    sd: Float[np.ndarray, " dim"]  # posterior standard deviation
    median: Float[np.ndarray, " dim"]  # posterior median
    # the most probable theta of all parameters together, or NaN if it was not searched for
    mode: Float[np.ndarray, " dim"]
    low: Float[np.ndarray, " dim"]  # begin of the equal-tailed interval; `high` its end
    high: Float[np.ndarray, " dim"]  # see `low`
    hdi_low: Float[np.ndarray, " dim"]  # begin of the shortest interval; `hdi_high` its end
    hdi_high: Float[np.ndarray, " dim"]  # see `hdi_low`
    shrinkage: Float[np.ndarray, " dim"]  # 1 - posterior variance / prior variance: 0 nothing learned, 1 everything
    correlation: Float[np.ndarray, "dim dim"]  # between parameters
    # correlation of two parameters given all others, if the posterior were Gaussian
    partial: Float[np.ndarray, "dim dim"]
    # log-density of x_o in nats, in the coordinates of the fit (transformed, standardised); NaN if unknown
    log_evidence: float
    log_evidence_error: float  # its standard error in nats, from the independent runs of the sampler


def summarise(draws: Draws, *, prior: Any = None, mode: Any = None) -> Summary:
    """Describe a posterior by numbers.

    Args:
        draws: of it.
        prior: draws of the prior (m, dim), to tell how much was learned.
        mode: the most probable theta, from `posterior.map(x_o)`.
    """
    values = np.asarray(draws, float)
    dim = values.shape[1]
    low, median, high = np.quantile(values, [(1 - CONTENT) / 2, 0.5, (1 + CONTENT) / 2], axis=0)
    shortest = np.array([hdi(column) for column in values.T])
    sd = values.std(axis=0, ddof=1)
    prior_sd = np.full(dim, np.nan) if prior is None else np.asarray(prior, float).std(axis=0, ddof=1)
    by_chain = np.asarray(draws.info.get("log_evidence_by_chain", []), float)
    relative = np.exp(by_chain - by_chain.max()) if len(by_chain) > 1 else np.array([])
    error = float(relative.std(ddof=1) / relative.mean() / np.sqrt(len(relative))) if len(relative) else float("nan")
    correlation = _correlation(values)
    return Summary(
        draws.names,
        values.mean(axis=0),
        sd,
        median,
        np.full(dim, np.nan) if mode is None else np.asarray(mode, float),
        low,
        high,
        shortest[:, 0],
        shortest[:, 1],
        1 - (sd / prior_sd) ** 2,
        correlation,
        _partial(correlation),
        draws.log_evidence,
        error,
    )


def hdi(values: Float[np.ndarray, " n"], content: float = CONTENT) -> tuple[float, float]:
    """Return the shortest interval with the given content.

    Example:
        >>> import numpy as np
        >>> low, high = hdi(np.random.default_rng(0).exponential(size=20_000))
        >>> bool(low < 0.01 and abs(high - 3.0) < 0.15)
        True
    """
    ordered = np.sort(np.asarray(values, float))
    inside = max(int(np.ceil(content * len(ordered))), 1)
    widths = ordered[inside - 1 :] - ordered[: len(ordered) - inside + 1]
    start = int(np.argmin(widths))
    return float(ordered[start]), float(ordered[start + inside - 1])


@dataclass(frozen=True)
class BayesFactor:
    """How much more probable the observation is under one fitted model than under another."""

    log_factor: float  # in nats; above 0 for the first
    # standard error of the sampler's part.  The error of the two fits comes on top, and is usually larger: take
    # differences of less than a nat or two for nothing.
    error: float

    def __str__(self) -> str:
        """Return one line."""
        word = "first" if self.log_factor > 0 else "second"
        return f"log Bayes factor {self.log_factor:+.2f} +- {self.error:.2f} (sampling only), in favour of the {word}"


def bayes_factor(first: Any, second: Any) -> BayesFactor:
    """Compare two fitted models on one observation.

    Each model is p(theta) q(x | theta) with a constant that was estimated in training, so that its evidence is a
    density of x.  The fit sees x in standardised coordinates; their Jacobian at x_o, which differs between fits, is
    added here: both evidences are then densities in the units of the data, and their ratio has no unit.

    Args:
        first: a posterior and its draws at x_o, from tempered SMC (chains know no evidence).
        second: the same for the other model.

    Raises:
        InputError: the observations differ, an evidence is unknown, or the models are densities of different
            coordinates of x (one of them left some out as constant or redundant).
    """
    if not all(isinstance(model, tuple | list) and len(model) == 2 for model in (first, second)):
        raise InputError(
            "expected two pairs of a posterior and its draws; try bayes_factor((posterior, draws), (other, its_draws))."
        )
    (one, draws_one), (other, draws_other) = first, second
    if draws_one.x_o.shape != draws_other.x_o.shape or not np.allclose(draws_one.x_o, draws_other.x_o):
        raise InputError("expected draws at one and the same observation; got two different ones.")
    spaces: list[Any] = [p.likelihood.space_of_x() for p in (one, other)]
    if one.summary is not None or other.summary is not None:
        raise InputError("expected models of x; a model of a summary has no density of x, and no ratio is defined.")
    if None in spaces or spaces[0].modelled != spaces[1].modelled:
        raise InputError("expected models of the same coordinates of x; theirs differ, and no ratio is defined.")
    if not np.isfinite([draws_one.log_evidence, draws_other.log_evidence]).all():
        raise InputError("expected draws with a log-evidence; try posterior.sample(x_o, sampler=unle.TemperedSmc()).")
    value_one, error_one = _evidence(spaces[0], draws_one)
    value_other, error_other = _evidence(spaces[1], draws_other)
    return BayesFactor(value_one - value_other, float(np.hypot(error_one, error_other)))


def _evidence(space: Any, draws: Draws) -> tuple[float, float]:
    jacobian = sum(float(space.log_det(row)) for row in jnp.asarray(draws.x_o, jnp.float32))
    return draws.log_evidence + jacobian, summarise(draws).log_evidence_error


def _correlation(values: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.atleast_2d(np.nan_to_num(np.corrcoef(values.T)))  # a single parameter has a single number


def _partial(correlation: Float[np.ndarray, "dim dim"]) -> Float[np.ndarray, "dim dim"]:
    precision = np.linalg.pinv(correlation)
    scale = np.sqrt(np.maximum(np.diag(precision), 1e-300))
    partial = -precision / np.outer(scale, scale)
    np.fill_diagonal(partial, 1.0)
    return partial


@dataclass(frozen=True)
class Conditional:
    """Conditional densities around a point."""

    names: tuple[str, ...]  # of the parameters
    centre: Float[np.ndarray, " dim"]  # where the other parameters are held
    axes: Float[np.ndarray, "dim points"]  # the grid of every parameter
    single: Float[np.ndarray, "dim points"]  # density of each parameter given all others, normalised on its grid
    # density of (i, j) for i > j given all others; axes (j, i) as an image has them; zero for i <= j
    pair: Float[np.ndarray, "dim dim points points"]
    correlation: Float[np.ndarray, "dim dim"]  # of each pair given all others


def conditional(
    posterior: Posterior, x_o: Any, centre: Any = None, *, low: Any = None, high: Any = None, points: int = GRID_POINTS
) -> Conditional:
    """Evaluate all conditional densities of one and two parameters.

    Args:
        posterior: with a density; a wrapper that corrects the normaliser works as well.
        x_o: the observation.
        centre: where the others are held; the most probable theta by default.
        low: begin of every axis; the prior's bound, or a low quantile of it, by default.
        high: end of every axis.
        points: of every axis.
    """
    centre = np.asarray(posterior.map(x_o) if centre is None else centre, float)
    dim = posterior.prior.dim
    limits = posterior.prior.limits()
    low = np.asarray(limits[0] if low is None else low, float)
    high = np.asarray(limits[1] if high is None else high, float)
    if centre.shape != (dim,) or not np.isfinite(np.stack([low, high])).all() or dim > MOST_PARAMETERS:
        raise InputError(
            f"expected a centre of {dim} numbers, finite ends and {MOST_PARAMETERS} parameters at most; try low, high."
        )
    axes = np.linspace(low, high, points).T
    wanted = [(i, j) for i in range(dim) for j in range(i)]
    grids = [_single(centre, axes, i) for i in range(dim)] + [_pair(centre, axes, i, j) for i, j in wanted]
    logs = _evaluate(posterior, np.concatenate(grids), x_o)
    single = np.stack([_normalised(part) for part in logs[: dim * points].reshape(dim, points)])
    pair = np.zeros((dim, dim, points, points))
    correlation = np.eye(dim)
    for (i, j), part in zip(wanted, logs[dim * points :].reshape(-1, points, points), strict=True):
        pair[i, j] = _normalised(part)
        correlation[i, j] = correlation[j, i] = _grid_correlation(pair[i, j], axes[j], axes[i])
    return Conditional(posterior.prior.names, centre, axes, single, pair, correlation)


def _single(centre, axes, i):
    points = np.tile(centre, (axes.shape[1], 1))
    points[:, i] = axes[i]
    return points


def _pair(centre, axes, i, j):
    k = axes.shape[1]
    points = np.tile(centre, (k * k, 1))
    points[:, i], points[:, j] = np.repeat(axes[i], k), np.tile(axes[j], k)
    return points


def _evaluate(posterior: Posterior, points: np.ndarray, x_o: Any) -> np.ndarray:
    surplus = np.repeat(points[-1:], -len(points) % POINTS_AT_ONCE, axis=0)  # chunks of one shape: one compilation
    chunks = np.concatenate([points, surplus]).reshape(-1, POINTS_AT_ONCE, points.shape[1])
    logs = []
    with progress("Conditional densities", total=len(points)) as bar:
        for chunk in chunks:
            logs.append(np.asarray(posterior.log_prob(chunk, x_o), float))
            bar.advance(min(len(chunk), len(points) - (len(logs) - 1) * POINTS_AT_ONCE))
    return np.concatenate(logs)[: len(points)]


def _normalised(logs: np.ndarray) -> np.ndarray:
    top = logs.max()
    weights = np.exp(logs - top) if np.isfinite(top) else np.ones_like(logs)
    return weights / weights.sum()


def _grid_correlation(weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> float:
    """Return the correlation of a density with axes (y, x)."""
    across, along = weights.sum(axis=0), weights.sum(axis=1)
    dx, dy = x - across @ x, y - along @ y
    scale = np.sqrt((across @ dx**2) * (along @ dy**2))
    return float(dy @ weights @ dx / scale) if scale > 0 else 0.0


def export_draws(draws: Draws, path: str | Path) -> Path:
    """Write draws as NetCDF (.nc), Zarr (.zarr, needs the package zarr) or CSV (.csv), by the suffix.

    NetCDF and Zarr hold ArviZ's groups; CSV has one line per draw, with columns chain, draw and one per parameter.

    Args:
        draws: of one posterior.
        path: where to; never overwritten.

    Returns:
        The path.
    """
    path = Path(path)
    if path.suffix not in (".nc", ".zarr", ".csv"):
        raise InputError(f"expected a name that ends in .nc, .zarr or .csv; got {path.name}.")
    if path.exists():
        raise StoreError(f"{path} exists and is not overwritten; choose another name.")
    if path.suffix == ".nc":
        return draws.save(path)
    if path.suffix == ".zarr":
        try:
            import zarr  # noqa: F401  # pyright: ignore[reportMissingImports]  # optional
        except ImportError:
            raise InputError("expected the package zarr for a .zarr file; try `pip install zarr`, or .nc.") from None
        draws.to_arviz().to_zarr(path)
        return path
    chain, draw = np.indices(draws.values.shape[:2])
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["chain", "draw", *draws.names])
        flat = np.asarray(draws, float)
        writer.writerows([c, d, *row] for c, d, row in zip(chain.ravel(), draw.ravel(), flat.tolist(), strict=True))
    return path
