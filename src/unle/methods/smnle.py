r"""Score-matched neural likelihood estimation: a conditional energy, trained without its normaliser.

1. Standardise theta and x, with marginal transforms chosen from the data, as AUNLE does, and fit a conditional Gaussian
   q0(x | theta), in whose coordinates v the data have a mean of zero and unit covariance whatever theta is.
2. Match the scores of f = q0 exp(-E(theta, x)) and of the simulated pairs, exactly or in random slices, in the
   coordinates v; keep the point of training with the best held-out score.
3. Z(theta) was never looked at, so the posterior p(theta) f(x_o | theta) / Z(theta) is doubly intractable: learn
   log Z(theta) over the prior, or cancel Z by the exchange algorithm.

Why a fitted Gaussian: slopes are learned only where, for a given theta, data are; on a wide measure little says where
else the model has mass.  docs/baselines.md has what was measured of it.

Reference: Pacchiardi and Dutta, "Score matched neural exponential families for likelihood-free inference", 2022.
"""

from dataclasses import replace

import equinox as eqx
import jax.random as jr
import numpy as np

from unle.methods.abstract_method import AbstractAmortised
from unle.methods.training_pairs import standardised_pairs
from unle.models import Normalised, ReferencedLikelihood, unstacked
from unle.posterior import Exchange, Posterior, TemperedSmc
from unle.space import Prior
from unle.train import (
    AbstractBaseTraining,
    FixedBase,
    GaussianTraining,
    LogNormaliserTraining,
    ScoreMatching,
    fit_log_normaliser,
    fit_score_matching,
)

MOST_THETA = 2000  # parameters at which log Z is learned
# Simulations cover the prior, so that no theta beyond them is asked for: there a score-matched Z can be anything.
OVER_THE_PRIOR = LogNormaliserTraining(spread=0.0)


class SMNLE(AbstractAmortised):
    """Fit an energy to prior simulations by score matching; the posterior of any observation follows.

    Args:
        prior: of theta.
        sliced: match random slices of the score rather than all of it: cheaper with many data.
        base: what the energy tilts, and in whose coordinates scores are matched: a fitted Gaussian, or the wide measure
            of the original, `FixedBase()`.
        training: settings of score matching; `sliced` decides about its slices unless they are given here.
        reference: how the density is fitted from which auxiliary data start, if the base is not fitted itself; it is
            no part of the model and need not be the best there is.
        normaliser: how log Z(theta) is learned over the prior, which makes the posterior an ordinary one with a
            density; None to leave Z(theta) to the exchange algorithm.
        sampler: how the doubly intractable posterior is sampled if no normaliser is learned.

    Example:
        >>> import unle
        >>> prior = unle.Prior.uniform(low=[-1.0], high=[1.0])
        >>> sims = unle.simulate(lambda theta, rng: theta + 0.1 * rng.normal(), prior, 200, seed=0)
        >>> posterior = unle.SMNLE(prior, sliced=True).fit(sims, seed=1)  # doctest: +SKIP
        >>> draws = posterior.sample([0.3], 1000, seed=2)  # doctest: +SKIP
    """

    prior: Prior
    sliced: bool = eqx.field(static=True, default=False, kw_only=True)
    base: AbstractBaseTraining = GaussianTraining(iterations=1000, batch=256, weight_decay=0.05)
    training: ScoreMatching = ScoreMatching()
    reference: AbstractBaseTraining = GaussianTraining(iterations=1000, batch=256, weight_decay=0.05)
    sampler: Exchange = Exchange()
    normaliser: LogNormaliserTraining | None = OVER_THE_PRIOR

    def _fit(self, simulations, seed, metrics, memory):
        key_split, key_base, key_fit, key_reference, key_z, key_validity = jr.split(jr.key(seed), 6)
        work = max(base.work_per_row(self.prior.dim) for base in (self.base, self.reference))
        pairs = standardised_pairs(key_split, simulations, self.prior, members=1, memory=memory, work=work)
        rows = pairs.rows
        bases = self.base.fit(key_base, rows)
        models, outcome = fit_score_matching(
            key_fit, bases, rows, settings=self._settings, on_chunk=lambda record: metrics(stage="descent", **record)
        )
        metrics(stage="fitted", held_out_score=float(np.mean(np.asarray(outcome.losses))), steps=outcome.steps)
        references = bases
        if isinstance(self.base, FixedBase):
            references = self.reference.fit(key_reference, rows)
        model, reference = unstacked(models, 0), unstacked(references, 0)
        likelihood = ReferencedLikelihood(pairs.theta_space, pairs.x_space, model, reference)
        if self.normaliser is None:
            return Posterior(self.prior, pairs.given_valid(key_validity, likelihood, metrics), self.sampler)
        theta = pairs.theta[pairs.valid][:MOST_THETA]
        fit = fit_log_normaliser(key_z, likelihood, theta, settings=self.normaliser)
        metrics(stage="normalised", error=fit.error_max, error_sd=fit.error_sd, noise_sd=fit.noise_sd)
        normalised = Normalised(likelihood, fit.log_normaliser)
        return Posterior(self.prior, pairs.given_valid(key_validity, normalised, metrics), TemperedSmc())

    @property
    def _settings(self) -> ScoreMatching:
        if not self.sliced or self.training.slices is not None:
            return self.training
        return replace(self.training, slices=1)
