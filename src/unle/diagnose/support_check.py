r"""Do draws stay where the simulator can produce the data?

A likelihood may end sharply: data between theta - w and theta + w and nowhere else.  A learned density is smooth, and
gives some weight to parameters under which the data are impossible.  Means and widths hardly notice.  The largest
standardised residual does,

    f(theta, x) = max_j |v_j|,    v the residuals of x at theta, whitened by the base of the first member:

at the true theta it never exceeds what the noise allows, at draws beyond the edge it does.  Its level among the draws
is uniform if the posterior is right (see `calibration`).  If a share a of the draws is beyond the edge, hardly any
level is in the uppermost a.  So levels near one are counted, and too few of them are evidence: a binomial test.

Data of the whole prior are looked at where the posterior is meant for all of them, and data around x_o in any case.

At x_o itself: simulate N data at draws of the posterior.  If it is right, x_o and its theta are one more such pair, and
f(theta, x_o) exceeds all N with probability 1 / (N + 1), over draws and observations.  By Markov's inequality the share
of the draws at which it does exceeds s with a probability of at most 1 / (s (N + 1)).

Both see draws beyond an edge only if they are many.  Where the noise itself is found to end sharply (`sharp_ends`),
draws beyond the edge are to be expected even if none were counted, and the verdict is doubtful at best.

Reference: Modrak et al., "Simulation-based calibration checking for Bayesian computation: the choice of test quantities
shapes sensitivity", 2022.

**Does the noise of the data end sharply**, a density that stops rather than one that fades?  Simulate many times at one
and the same theta.  Let d_i be the distances of the k largest values of a coordinate from the largest of all, in units
of the distance of the next one inwards.  Where the density behaves like d^(a - 1) near its end, the mean of the d_i
tells a: about 1/2 for a jump (a = 1: uniform noise, exponential noise at its lower end), 2/3 for a density that falls
to zero linearly (a = 2: gamma noise of shape 2), more for tails of any kind.  It depends on neither place nor scale.
So the null hypothesis is the power law with a = 1.8, and its distribution is simulated.

A second peak that holds just the k largest values would look like a jump.  Three depths are looked at, the outermost
5, 10 and 20 % of the values, and the largest of the three p-values counts.

An end harms a posterior only if it moves with theta: the learned density rounds it off, and gives weight to
parameters under which the data are impossible.  A wall that stays where it is cuts off all parameters alike.  So an end
counts if its place differs between draws of the posterior: the outermost and the third outermost of four, since a draw
at which nothing reaches a wall says nothing about where it is.

With 4 draws and 1,000 simulations at each, at level 0.01 for one end: uniform, exponential and half-normal noise is
found in 99 of 100 cases or more, gamma noise of shape 2 and log-normal noise in 0.3 %, and normal, t, Laplace, Cauchy,
logistic, Gumbel, triangular and beta(2, 2) noise and mixtures of two normals never in 200 trials.  What it cannot see:
an end of a combination of several coordinates, an end blurred by other noise of a fiftieth of the width or more, and
a truncation in the tail, two standard deviations out.  Data on a lattice have no density, and are left out.
"""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.stats import binom

from unle.diagnose.calibration import Calibration
from unle.diagnose.calibration_checks import require
from unle.diagnose.p_values import tail_probability
from unle.diagnose.record import DOUBTFUL_BELOW, Check, CheckKind, at_most, bonferroni, verdict_of
from unle.models import Ensemble

DEPTHS = 0.05, 0.1, 0.2  # shares of the values, the outermost, that are looked at
FADING = 1.8  # exponent a of the null hypothesis; 2 would call gamma noise of shape 2 sharp in 4 % of cases
NULLS = 2000  # simulated values of the statistic under the null hypothesis
DISTINCT = 0.9  # share of the values that must differ from each other: ties are no density
MOVED = 0.1  # of the outermost fifth's width: how far an end must move between draws to count
SIMULATIONS = 1000  # at each draw
FEWEST_SIMULATIONS = 300  # at each draw, below which hardly any end would be found
DRAWS = 4  # of the posterior
SUPPORT = CheckKind("support", "Support of the data", "Can the simulator produce the data at all draws?")
SHARES = 0.02, 0.05, 0.1, 0.2  # of levels, the uppermost, that are counted


class SharpEnd(NamedTuple):
    """An end of the noise of one coordinate."""

    coordinate: int  # number of the data coordinate
    upper: bool  # whether values end upwards
    p_value: float  # of a density that fades, not corrected for the number of ends
    places: Float[np.ndarray, " draw"]  # the extreme value at every draw


def sharp_ends(w: Float[np.ndarray, "draw n data"]) -> list[SharpEnd]:
    """Return the sharp ends that move with theta.

    Args:
        w: simulations in the coordinates of the fit, n at each of three draws of theta or more.

    Example:
        >>> import numpy as np
        >>> rng, theta = np.random.default_rng(0), np.array([0.0, 0.3, 0.8, 1.1])[:, None, None]
        >>> [end.upper for end in sharp_ends(theta + rng.uniform(size=(4, 1000, 1)))]
        [False, True]
        >>> sharp_ends(theta + rng.normal(size=(4, 1000, 1)))
        []
    """
    ends = [end for j in range(w.shape[2]) for end in _ends_of(w[:, :, j], j)]
    return [end for end in ends if end.p_value * 2 * w.shape[2] < DOUBTFUL_BELOW]


def _ends_of(values: Float[np.ndarray, "draw n"], coordinate: int) -> list[SharpEnd]:
    ordered = np.sort(values, axis=1)
    if np.mean(np.diff(ordered, axis=1) > 0) < DISTINCT:
        return []
    found = []
    for upper in (False, True):
        inwards = ordered[:, ::-1] if upper else ordered
        distances = np.abs(inwards - inwards[:, :1])
        places, width = inwards[:, 0], distances[:, int(DEPTHS[-1] * values.shape[1])].mean()
        outwards = np.sort(places)[::-1] if upper else np.sort(places)
        if abs(outwards[0] - outwards[2]) > MOVED * width:
            p_value = max(_p_value(distances, int(depth * values.shape[1])) for depth in DEPTHS)
            found.append(SharpEnd(coordinate, upper, p_value, places))
    return found


def _p_value(distances: Float[np.ndarray, "draw n"], k: int) -> float:
    """Return the probability of a mean distance as small, if the density fades."""
    mean = float(np.mean(distances[:, 1:k] / np.maximum(distances[:, k : k + 1], 1e-300)))
    return tail_probability(-_null_means(len(distances), k), -mean)


@cache
def _null_means(draws: int, k: int) -> Float[np.ndarray, " null"]:
    """Return the mean of k - 1 distances at each of some draws, for densities d^(FADING - 1)."""
    distances = np.sort(np.random.default_rng([draws, k]).uniform(size=(NULLS, draws, k)) ** (1 / FADING), axis=2)
    nearest = distances[..., :1]
    return np.mean((distances[..., 1:] - nearest) / (1 - nearest), axis=(1, 2))


class Residuals(NamedTuple):
    """Levels of the largest residual of some simulated data."""

    levels: Float[np.ndarray, " n"]  # of the truths among the draws
    independent: float  # how many levels would be as uncertain, were the draws not shared


def residual_levels(ensemble: Ensemble, calibration: Calibration, *, effective: float = np.inf) -> Residuals:
    """Return the level of every truth's largest residual among those of the draws.

    The first member's base measures residuals.  `effective` draws are independent, if all posteriors share them.
    """
    require(calibration)
    dim, dim_x = ensemble.theta_space.dim, ensemble.x_space.dim_x
    rows = jnp.asarray(calibration.x.reshape(len(calibration), -1, dim_x), jnp.float32)
    points = np.concatenate([calibration.draws[..., :dim], calibration.truth[:, None, :dim]], axis=1)
    values = np.asarray(_largest(ensemble, jnp.asarray(points, jnp.float32), rows), float)
    levels = calibration.levels(values[:, :-1], values[:, -1], stream=dim)
    return Residuals(levels, len(levels) / (1 + len(levels) / effective))


class Extremes(NamedTuple):
    """How x_o compares with simulations at draws of its posterior."""

    share: float  # of the draws, at which x_o has a larger residual than all simulations
    simulations: int  # how many there are


def extreme_draws(
    ensemble: Ensemble,  # whose first member's base measures residuals
    draws: Float[np.ndarray, "n dim"],  # of the posterior at x_o
    x_o: Float[np.ndarray, "row dim_x"],  # the observation
    theta: Float[np.ndarray, "m dim"],  # draws that were simulated at
    x: Float[np.ndarray, "m row dim_x"],  # the simulations, with as many rows each as the observation
) -> Extremes:
    """Return the share of draws at which x_o has a larger residual than all of some simulations."""
    points, rows = jnp.asarray(draws, jnp.float32)[None], jnp.asarray(x_o, jnp.float32)[None]
    of_x_o = np.asarray(_largest(ensemble, points, rows))[0]
    simulated = np.asarray(_largest(ensemble, jnp.asarray(theta, jnp.float32)[:, None], jnp.asarray(x, jnp.float32)))
    return Extremes(float(np.mean(of_x_o > simulated.max())), len(x))


def support(residuals: Sequence[Residuals], at_x_o: Extremes, ends: Sequence[SharpEnd] = ()) -> Check:
    """Count levels close to one, and draws at which x_o is extreme; the first levels are the array `levels`.

    `residuals` has the levels, of data from the prior or around x_o, and `ends` the sharp ends of the noise.
    """
    tests = [_too_few(one, share) for one in residuals for share in SHARES]
    of_levels = bonferroni([p for p, _ in tests])
    of_x_o = min(1.0, 1 / (max(at_x_o.share, 1e-9) * (at_x_o.simulations + 1)))
    p_value = bonferroni([of_levels, of_x_o])
    missing = tests[int(np.argmin([p for p, _ in tests]))][1]
    beyond = at_x_o.share if of_x_o < of_levels else missing
    verdict = verdict_of(p_value)
    advice = "Nothing to see: at the draws the data are as likely as they should be."
    if verdict != "good":
        advice = (
            f"About {max(beyond, 0.01):.0%} of the draws lie where the simulator would not produce such data: the "
            "likelihood ends more sharply than the model; simulate more, or infer statistics such as the smallest and "
            "largest value."
        )
    elif ends:
        verdict, advice = at_most(verdict, "doubtful"), _advice_on(ends)
    numbers = {
        "p": p_value,
        "beyond": beyond,
        "posteriors": sum(len(one.levels) for one in residuals),
        "sharp_ends": len(ends),
    }
    return SUPPORT.result(verdict, numbers, advice, {"levels": residuals[0].levels[:, None]})


def _advice_on(ends: Sequence[SharpEnd]) -> str:
    sharpest = min(ends, key=lambda end: end.p_value)
    side = "above" if sharpest.upper else "below"
    others = len({end.coordinate for end in ends}) - 1
    more = f" (and that of {others} more coordinates)" if others > 1 else " (and that of one more)" if others else ""
    return (
        f"The noise of x_{sharpest.coordinate + 1}{more} has a sharp end {side}, which the fitted density rounds off: "
        "parameters near the edge of what is possible may keep a few per cent of mass that belongs to none."
    )


def _too_few(residuals: Residuals, share: float) -> tuple[float, float]:
    """Return the probability of so few levels in the uppermost share, and what is missing of it."""
    part = float(np.mean(residuals.levels > 1 - share))
    count = round(residuals.independent)
    return float(binom.cdf(np.floor(part * count), count, share)), share - part


@eqx.filter_jit
def _largest(ensemble: Ensemble, theta: Float[Array, "n draw dim"], rows: Float[Array, "n row dim_x"]):
    base = ensemble.member(0).model.base

    def of_one(item):
        theta, rows = item
        w = jax.vmap(ensemble.prepare)(rows)

        def at(theta):
            t = ensemble.theta_space.forward(theta)
            return jnp.max(jnp.abs(jax.vmap(lambda w: base.whiten(t, w))(w)))

        return jax.vmap(at)(theta)

    return jax.lax.map(of_one, (theta, rows))
