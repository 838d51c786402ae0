r"""Many posteriors whose truth is known: what SBC, coverage and TARP look at.

Draw theta* from the prior and x* from the simulator.  If the learned posterior q(theta | x*) is the right one, theta*
is just another draw of it.  For any function f(theta, x*) its level among draws theta_1 ... theta_L with weights w,

    u = [ sum_{l: f_l < f*} w_l + V w* ] / [ sum_l w_l + w* ],      V uniform,

is then uniform on [0, 1] *exactly*, whatever L, the weights or the proposal are: given all L + 1 points, theta* is any
one of them with probability proportional to the weights, w* being the weight that theta* would have had as a draw.
Plain draws have equal weights, and u is the usual rank.  Weighted ones (see `population`) make hundreds of posteriors
affordable.  Few effective draws cost power, never a false alarm.

Calibration is about the *learned posterior*, averaged over the prior.  It does not look at the sampler that makes the
draws at x_o, nor at x_o itself: other checks do.

References: Talts et al., 2018; Modrak et al., 2022; Lemos et al., 2023.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Float

from unle.diagnose.population import weigh_many
from unle.errors import InputError
from unle.models import TractableLikelihood
from unle.posterior import Posterior
from unle.progress import progress

FEWEST_EFFECTIVE = 20  # draws per posterior, in the median; with fewer a check would see little
BLOCK = 25  # posteriors between two signs of life


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
    keys = jax.vmap(lambda i: jr.fold_in(jr.key(seed), i))(jnp.arange(len(x)))
    parts = []
    with progress("Calibrating", total=len(x)) as bar:
        for start in range(0, len(x), BLOCK):
            rows = np.arange(start, start + BLOCK) % len(x)  # the last block is filled up: one compilation
            weighed = weigh_many(
                posterior.prior,
                posterior.likelihood,
                keys[rows],
                jnp.asarray(truth[rows]),
                jnp.asarray(x[rows])[:, None],
                draws,
            )
            wanted = min(BLOCK, len(x) - start)
            parts.append([np.asarray(leaf)[:wanted] for leaf in weighed])
            bar.advance(wanted)
    theta, log_weight, height, true_weight, true_height = (
        np.concatenate(leaves) for leaves in zip(*parts, strict=True)
    )
    return Calibration(
        posterior.prior.names, truth, x, theta, log_weight, true_weight, height, true_height, in_sample, seed
    )
