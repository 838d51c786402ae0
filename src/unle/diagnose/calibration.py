r"""Many posteriors whose truth is known: what SBC, coverage, TARP and posterior SBC look at.

Draw theta* from the prior and x* from the simulator.  If the learned posterior q(theta | x*) is the right one, theta*
is just another draw of it.  For any function f(theta, x*) its level among draws theta_1 ... theta_L with weights w,

    u = [ sum_{l: f_l < f*} w_l + V w* ] / [ sum_l w_l + w* ],      V uniform,

is then uniform on [0, 1] *exactly*, whatever L, the weights or the proposal are: given all L + 1 points, theta* is any
one of them with probability proportional to the weights, w* being the weight that theta* would have had as a draw.
Plain draws have equal weights, and u is the usual rank.  Weighted ones (`calibration_sampling`) make hundreds of
posteriors affordable.  Few effective draws cost power, never a false alarm.

Calibration is about the *learned posterior*, averaged over the prior.  It does not look at the sampler that makes the
draws at x_o, nor at x_o itself: other checks do.

A sequential run learns a likelihood around x_o, so that data from the whole prior cannot judge it.  Data from its own
posterior can (`calibrate_around`).  Draw theta' from the posterior at x_o and simulate y at it.  If the learned
q(y | theta) is right, theta' is just another draw of

    p(theta | x_o) q(y | theta),

the posterior given both.  Its draws need no sampler: they are those at x_o, with weights q(y | theta).  The draws that
theta' is ranked among come from other chains than theta' itself, but all theta' share them.  With N of the ones and L
effective draws of the others their common error multiplies the variance of a test by 1 + N / L.

References: Talts et al., 2018; Modrak et al., 2022; Lemos et al., 2023; Sailynoja, Schmitt, Burkner and Vehtari,
"Posterior SBC: simulation-based calibration checking conditional on data", 2025.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Float, Int
from scipy.stats import rankdata

from unle.diagnose.calibration_sampling import weigh_around_modes, weigh_many, weigh_population
from unle.diagnose.likelihoods import (
    log_likelihood_draws,
    log_likelihood_pairs,
    log_likelihood_table,
    operations,
    without_region,
)
from unle.diagnose.predictive_checks import Replicas
from unle.diagnose.record import NotMade
from unle.errors import InputError
from unle.models import TractableLikelihood
from unle.posterior import Draws, Posterior
from unle.progress import progress
from unle.space import Prior, XSpace

FEWEST_EFFECTIVE = 20  # draws per posterior, in the median; with fewer a check would see little
BLOCK = 25  # posteriors between two updates of the progress bar
# Of `calibrate_around`:
WEIGHED_DRAWS = 2000  # four times as many where few of them carry the weight
FEWEST_WEIGHED = 400  # where likelihoods are dear
ENOUGH_EFFECTIVE = 100  # draws in the median, with which the first are enough
FRESH_DRAWS = 1000  # of each posterior, where those at x_o do not do
FEWEST_POSTERIORS = 50
FEWEST_NEAREST, MOST_NEAREST = 100, 200  # simulations that count as near
MOST_OPERATIONS = 5e11  # for the posteriors around x_o: half a minute on two cores; then there are fewer of them
OF_Y, OF_X_O = "log q(y | theta)", "log q(x_o | theta)"  # names of two further columns beside the parameters


@dataclass(frozen=True)
class Calibration:
    """Posteriors of simulated observations, with the parameters that made them.

    Attributes:
        names: of the parameters.
        truth: theta*.
        x: x*, the observations.
        draws: of the posterior given x*.
        log_weights: of the draws; zeros if they are plain.
        true_log_weight: the weight that the truth would have had as a draw.
        heights: log posterior density of the draws, or None if it is not known.
        true_height: that of the truth.
        in_sample: whether the posterior was fitted to these very simulations, which flatters it.
        seed: of the tie-breaking numbers V.
    """

    names: tuple[str, ...]
    truth: Float[np.ndarray, "n dim"]
    x: Float[np.ndarray, "n dim_x"]
    draws: Float[np.ndarray, "n draw dim"]
    log_weights: Float[np.ndarray, "n draw"]
    true_log_weight: Float[np.ndarray, " n"]
    heights: Float[np.ndarray, "n draw"] | None = None
    true_height: Float[np.ndarray, " n"] | None = None
    in_sample: bool = False
    seed: int = 0

    @classmethod
    def of_draws(cls, truth: Any, x: Any, draws: Any, *, heights=None, true_height=None, names=None, seed: int = 0):
        """Take plain, unweighted draws (n, L, dim) of n posteriors, from whatever sampler.

        They must be independent: thin a Markov chain until they nearly are, or a right posterior looks wrong.
        """
        truth, draws = np.asarray(truth, float), np.asarray(draws, float)
        if truth.ndim != 2 or draws.ndim != 3 or draws.shape[::2] != truth.shape:
            raise InputError(f"expected truth (n, dim) and draws (n, L, dim); got {truth.shape} and {draws.shape}.")
        names = tuple(f"theta_{i + 1}" for i in range(truth.shape[1])) if names is None else tuple(names)
        weights = np.zeros(draws.shape[:2])
        given = None if heights is None else np.asarray(heights, float)
        true_height = None if true_height is None else np.asarray(true_height, float)
        return cls(
            names, truth, np.asarray(x, float), draws, weights, np.zeros(len(truth)), given, true_height, seed=seed
        )

    def __len__(self) -> int:
        return len(self.truth)

    @property
    def weights(self) -> Float[np.ndarray, "n draw_and_truth"]:
        """Normalised weights of the draws and, last, of the truth."""
        logs = np.concatenate([self.log_weights, self.true_log_weight[:, None]], axis=1)
        logs = np.where(np.isfinite(logs), logs, -np.inf)
        top = logs.max(axis=1, keepdims=True)
        weights = np.exp(logs - np.where(np.isfinite(top), top, 0.0))
        total = weights.sum(axis=1, keepdims=True)
        lost = ~(total > 0)  # the likelihood vanishes everywhere: the truth may be any of them
        return np.where(lost, 1.0, weights) / np.where(lost, weights.shape[1], total)

    @property
    def effective(self) -> float:
        """Effective number of draws of a posterior, in the median."""
        return float(np.median(1 / np.sum(self.weights**2, axis=1)))

    def levels(self, values: Float[np.ndarray, "n draw"], true_value: Float[np.ndarray, " n"], *, stream: int = 0):
        """Return the level u of every truth for the function f with these values; ties are broken at random."""
        weights = self.weights
        below = np.sum(weights[:, :-1] * (values < true_value[:, None]), axis=1)
        ties = np.sum(weights[:, :-1] * (values == true_value[:, None]), axis=1) + weights[:, -1]
        return below + np.random.default_rng([self.seed, stream]).uniform(size=len(below)) * ties

    def moments(self) -> tuple[Float[np.ndarray, "n dim"], Float[np.ndarray, "n dim"]]:
        """Return mean and standard deviation of every posterior.

        The truth counts with its weight, as one more draw: left out, it would stand out from the draws, which all are
        part of their mean, where few of them carry the weight.
        """
        points = np.concatenate([self.draws, self.truth[:, None]], axis=1)
        mean = np.einsum("nl,nld->nd", self.weights, points)
        variance = np.einsum("nl,nld->nd", self.weights, (points - mean[:, None]) ** 2)
        return mean, np.sqrt(np.maximum(variance, 1e-24 * (1 + mean**2)))


def calibrate(
    posterior: Posterior,
    truth: Any,
    x: Any,
    *,
    draws: int = 1000,
    seed: int = 0,
    in_sample: bool = False,
) -> Calibration:
    """Weigh draws of the posterior of every simulated observation.

    Args:
        posterior: fitted, with a likelihood known up to a constant.
        truth: parameters drawn from the prior, (n, dim).
        x: one simulation at each, (n, dim_x), which the fit has not seen.
        draws: weighted draws of each posterior.
        seed: fixes the result.
        in_sample: say so if the fit did see them.

    Returns:
        A `Calibration`.
    """
    truth, x = np.asarray(truth, np.float32), np.asarray(x, np.float32)
    if truth.ndim != 2 or x.ndim != 2 or len(truth) != len(x) or truth.shape[1] != posterior.prior.dim:
        raise InputError(f"expected rows of theta and as many of x; got {truth.shape} and {x.shape}.")
    if not isinstance(posterior.likelihood, TractableLikelihood):
        raise InputError("expected a likelihood known up to a constant; try Calibration.of_draws with draws of yours.")
    if draws < 100:
        raise InputError(f"expected at least 100 draws of each posterior; got {draws}; try 1000.")
    x = np.asarray(posterior.summarise(x), np.float32)
    model = posterior.prior, posterior.likelihood
    theta, log_weight, height, true_weight, true_height = _weigh_blocks(*model, truth, x[:, None], draws, seed)
    return Calibration(
        posterior.prior.names, truth, x, theta, log_weight, true_weight, height, true_height, in_sample, seed
    )


def _weigh_blocks(
    prior: Prior, likelihood: TractableLikelihood, truth, data, draws: int, seed: int
) -> list[np.ndarray]:
    """Return the fields of `Weighted`, from whichever proposal leaves more effective draws in the first block."""
    keys = jax.vmap(lambda i: jr.fold_in(jr.key(seed), i))(jnp.arange(len(data)))

    def block(weigh, start):
        rows = np.arange(start, start + BLOCK) % len(data)  # the last block is filled up: one compilation
        at = keys[rows], jnp.asarray(truth[rows]), jnp.asarray(data[rows])
        weighed = weigh_many(weigh, prior, likelihood, *at, draws)
        return [np.asarray(leaf)[: len(data) - start] for leaf in weighed]

    with progress("Calibrating", total=len(data)) as bar:
        weigh, first = weigh_population, block(weigh_population, 0)
        if _effective(first[1]) < ENOUGH_EFFECTIVE:
            other = block(weigh_around_modes, 0)
            if _effective(other[1]) > _effective(first[1]):
                weigh, first = weigh_around_modes, other
        parts = [first]
        bar.advance(len(first[0]))
        for start in range(BLOCK, len(data), BLOCK):
            parts.append(block(weigh, start))
            bar.advance(len(parts[-1][0]))
    return [np.concatenate(leaves) for leaves in zip(*parts, strict=True)]


def _effective(log_weights: np.ndarray) -> float:
    """Return the effective number of draws in the median; the truths have no part in it."""
    logs = np.asarray(log_weights, float)
    top = logs.max(axis=1, keepdims=True)
    weights = np.exp(logs - np.where(np.isfinite(top), top, 0.0))
    return float(np.median(weights.sum(axis=1) ** 2 / np.maximum((weights**2).sum(axis=1), 1e-300)))


def nearest_rows(
    space: XSpace, x: Float[np.ndarray, "n rows dim_x"], x_o: Float[np.ndarray, "rows dim_x"]
) -> Int[np.ndarray, " near"]:
    """Return which simulations are most like x_o: an eighth of them, within limits.

    Distances are between ranks of standardised coordinates; of several rows, of their means and spreads.
    """
    both = np.concatenate([x, x_o[None]])
    w = space.forward_table(both.reshape(-1, both.shape[2])).reshape(*both.shape[:2], -1)
    features = w[:, 0] if w.shape[1] == 1 else np.concatenate([w.mean(axis=1), w.std(axis=1)], axis=1)
    ranks = rankdata(features, axis=0)
    distance = np.sum((ranks[:-1] - ranks[-1]) ** 2, axis=1)
    return np.argsort(distance, kind="stable")[: min(max(len(x) // 8, FEWEST_NEAREST), MOST_NEAREST)]


def calibrate_around(
    prior: Prior, likelihood: TractableLikelihood, draws: Draws, pairs: Replicas, *, ess: float, seed: int = 0
) -> tuple[Calibration, float]:
    """Weigh the draws at x_o by one more simulation at some of them, the first of each pair.

    `ess` is the effective number of the draws.  The posteriors have log q(y | theta) and log q(x_o | theta) as two
    further columns beside the parameters.
    """
    usable = np.flatnonzero(pairs.valid[:, 0])
    # Neighbours in a chain are copies of each other where few draws are effective.
    wanted = min(len(usable), int(ess / 2))
    if wanted < FEWEST_POSTERIORS:
        raise NotMade(f"{FEWEST_POSTERIORS} valid simulations at independent draws are needed; there are {wanted}.")
    of_data = without_region(likelihood)
    values = np.asarray(draws, np.float32)
    affordable = MOST_OPERATIONS / max(operations(of_data, values[0], pairs.x[usable[0], 0]), 1.0)  # likelihoods
    # Where likelihoods are dear, fewer draws rather than few posteriors: levels are exact with any number of draws.
    first = min(WEIGHED_DRAWS, max(FEWEST_WEIGHED, int(affordable / wanted)))
    for most in (first, 4 * WEIGHED_DRAWS):
        count = min(wanted, int(affordable / min(most, len(values))))
        if count < FEWEST_POSTERIORS and most > first:
            break
        count = max(count, FEWEST_POSTERIORS)
        some = usable[np.linspace(0, len(usable) - 1, count).astype(int)]
        around, shared = _weighed(of_data, draws, pairs, some, most, ess=ess, seed=seed)
        if around.effective >= ENOUGH_EFFECTIVE or len(draws) <= most:
            break
    if around.effective < FEWEST_EFFECTIVE and of_data is likelihood:
        own = _weighed_anew(prior, likelihood, draws, pairs, some, seed=seed)
        if own.effective > around.effective:
            return own, np.inf
    return around, shared


def _weighed_anew(
    prior: Prior, likelihood: TractableLikelihood, draws: Draws, pairs: Replicas, usable: np.ndarray, *, seed: int
) -> Calibration:
    """Weigh fresh draws of every posterior given x_o and y: where the draws at x_o are too few, with many parameters.

    Nothing is shared by these posteriors.
    """
    truth, y = np.asarray(pairs.theta[usable], np.float32), np.asarray(pairs.x[usable, 0], np.float32)
    x_o = np.broadcast_to(np.asarray(draws.x_o, np.float32), (len(y), *draws.x_o.shape))
    both = np.concatenate([x_o, y], axis=1)
    theta, log_weight, _, true_weight, _ = _weigh_blocks(prior, likelihood, truth, both, FRESH_DRAWS, seed + len(y))
    of_both = [log_likelihood_draws(likelihood, theta, data)[..., None] for data in (y, x_o)]
    at_truth = [log_likelihood_pairs(likelihood, truth, data)[:, None] for data in (y, x_o)]
    return Calibration(
        (*draws.names, OF_Y, OF_X_O),
        np.concatenate([truth, *at_truth], axis=1),
        y.reshape(len(y), -1),
        np.concatenate([theta, *of_both], axis=2),
        log_weight,
        true_weight,
        seed=seed,
    )


def _weighed(
    likelihood: TractableLikelihood,
    draws: Draws,
    pairs: Replicas,
    usable: np.ndarray,
    most: int,
    *,
    ess: float,
    seed: int,
) -> tuple[Calibration, float]:
    values = np.asarray(draws, np.float32)
    chosen = np.linspace(0, len(values) - 1, min(len(values), most)).astype(int)
    theta, truth = values[chosen], np.asarray(pairs.theta[usable], np.float32)
    # One chain is taken for two: its halves.
    length = draws.values.shape[1] if draws.values.shape[0] > 1 else -(-len(values) // 2)
    own = (chosen // length)[None] == (pairs.index[usable] // length)[:, None]
    share = 1 - float(own.mean())
    y = pairs.x[usable, 0]
    at_y = log_likelihood_table(likelihood, theta, y)
    at_x_o = log_likelihood_table(likelihood, np.concatenate([theta, truth]), draws.x_o[None])[0]
    at_truth = log_likelihood_pairs(likelihood, truth, y)
    n, kept = len(usable), len(chosen)
    points = np.concatenate(
        [
            np.broadcast_to(theta, (n, *theta.shape)),
            at_y[..., None],
            np.broadcast_to(at_x_o[:kept, None], (n, kept, 1)),
        ],
        axis=2,
    )
    names = (*draws.names, OF_Y, OF_X_O)
    truths = np.concatenate([truth, at_truth[:, None], at_x_o[kept:, None]], axis=1)
    weights = np.where(own, -np.inf, at_y)
    around = Calibration(names, truths, y.reshape(n, -1), points, weights, at_truth, seed=seed)
    return around, max(share * min(ess, kept), 1.0)
