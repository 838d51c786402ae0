"""The answer in numbers: location, intervals, dependence, evidence.

Two kinds of interval are given.  The equal-tailed one leaves 2.5 % on either side; the highest-density one is the
shortest with the content, and the better of the two for skewed posteriors.  For several modes neither is good:
plot the draws.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from unle.errors import InputError
from unle.posterior import Draws

CONTENT = 0.95


@dataclass(frozen=True)
class Summary:
    """What was learned about every parameter.

    Attributes:
        names: of the parameters.
        mean: posterior mean; sd and median are those of the posterior too.
        sd: posterior standard deviation.
        median: posterior median.
        mode: the most probable theta of all parameters together, or NaN if it was not searched for.
        low: begin of the equal-tailed interval; `high` its end.
        high: see `low`.
        hdi_low: begin of the shortest interval; `hdi_high` its end.
        hdi_high: see `hdi_low`.
        shrinkage: 1 - posterior variance / prior variance: 0 nothing learned, 1 everything.
        correlation: between parameters.
        partial: correlation of two parameters given all others, if the posterior were Gaussian.
        log_evidence: log probability of x_o under the model, in the coordinates of the fit; NaN if unknown.
        log_evidence_error: its standard error, from the independent runs of the sampler.
    """

    names: tuple[str, ...]
    mean: Float[np.ndarray, " dim"]
    sd: Float[np.ndarray, " dim"]
    median: Float[np.ndarray, " dim"]
    mode: Float[np.ndarray, " dim"]
    low: Float[np.ndarray, " dim"]
    high: Float[np.ndarray, " dim"]
    hdi_low: Float[np.ndarray, " dim"]
    hdi_high: Float[np.ndarray, " dim"]
    shrinkage: Float[np.ndarray, " dim"]
    correlation: Float[np.ndarray, "dim dim"]
    partial: Float[np.ndarray, "dim dim"]
    log_evidence: float
    log_evidence_error: float


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
    """How much more probable the observation is under one fitted model than under another.

    Attributes:
        log_factor: in nats; above 0 for the first.
        error: standard error of the sampler's part.  The error of the two fits comes on top, and is usually larger:
            take differences of less than a nat or two for nothing.
    """

    log_factor: float
    error: float

    def __str__(self) -> str:
        """Return one line."""
        word = "first" if self.log_factor > 0 else "second"
        return f"log Bayes factor {self.log_factor:+.2f} +- {self.error:.2f} (sampling only), in favour of the {word}"


def bayes_factor(first: tuple[Any, Draws], second: tuple[Any, Draws]) -> BayesFactor:
    """Compare two fitted models on one observation.

    Each model is p(theta) q(x | theta) with a constant that was estimated in training, so that its evidence is a
    density of x.  The fit sees x in standardised coordinates; their Jacobian at x_o, which differs between fits, is
    added here.

    Args:
        first: a posterior and its draws at x_o, from tempered SMC (chains know no evidence).
        second: the same for the other model.

    Raises:
        InputError: the observations differ, an evidence is unknown, or the models are densities of different
            coordinates of x (one of them left some out as constant or redundant).
    """
    (one, draws_one), (other, draws_other) = first, second
    if draws_one.x_o.shape != draws_other.x_o.shape or not np.allclose(draws_one.x_o, draws_other.x_o):
        raise InputError("expected draws at one and the same observation; got two different ones.")
    spaces: list[Any] = [p.likelihood.space_of_x() for p in (one, other)]
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
