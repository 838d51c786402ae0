r"""Amortized UNLE: an energy-based likelihood from one set of prior simulations, for every observation.

1. Standardise theta and x, with marginal transforms chosen from the data.
2. Fit an ensemble of bases q0(x | theta).
3. Train the members' energies by maximum likelihood of the tilted joint model p(theta) q0(x | theta) exp(-E) / Z.
4. Keep the energies if they raise the held-out likelihood above the bases'; estimate the members' constants.

Reference: Glaser et al., "Maximum likelihood learning of unnormalized models for simulation-based inference", 2023.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from unle.errors import InputError
from unle.methods.inputs import apply_space, valid_pairs
from unle.methods.selection import gated, simplest_as_good
from unle.models import Ensemble
from unle.posterior import AbstractStrategy, Posterior, TemperedSmc
from unle.space import Prior, fit_theta_space, fit_x_space
from unle.train import (
    AbstractBaseTraining,
    GaussianTraining,
    JointSpace,
    TiltedTraining,
    fit_tilted,
    make_splits,
)


class AUNLE(eqx.Module):
    """Fit an unnormalised likelihood to prior simulations; the posterior of any observation follows.

    The defaults are meant for every task.  The original algorithm of the paper is
    `AUNLE(prior, base=FixedBase(), training=TiltedTraining(PersistentChains(), bound=None), members=1)`.

    Args:
        prior: the prior the simulations were drawn from.
        base: how the base density comes about; a fitted conditional Gaussian by default.
        training: how the energies are trained.
        members: size of the ensemble.
        strategy: how the posterior is sampled.

    Example:
        >>> import numpy as np, unle
        >>> prior = unle.Prior.uniform(low=[-1.0], high=[1.0])
        >>> sims = unle.simulate(lambda theta, rng: theta + 0.1 * rng.normal(), prior, 200, seed=0)
        >>> posterior = unle.AUNLE(prior).fit(sims, seed=1)  # doctest: +SKIP
        >>> draws = posterior.sample([0.3], 1000, seed=2)  # doctest: +SKIP
    """

    prior: Prior
    base: AbstractBaseTraining = GaussianTraining()
    training: TiltedTraining = TiltedTraining()
    members: int = eqx.field(static=True, default=3)
    strategy: AbstractStrategy = TemperedSmc()

    def __check_init__(self):
        if self.members < 1:
            raise InputError(f"expected at least one ensemble member; got {self.members}; try members=3.")

    def fit(
        self,
        simulations: Any,
        *,
        seed: int = 0,
        on_metrics: Callable[..., None] | None = None,
    ) -> Posterior:
        """Fit the likelihood.

        Args:
            simulations: from `unle.simulate`, or a pair (theta, x) of arrays, one row per simulation, with theta drawn
                from the prior.
            seed: fixes the fit.
            on_metrics: called with keyword arguments, once per chunk of training as it ends and once with the
                summary of the fit; `RunDirectory.append_metrics` writes them down.

        Returns:
            The posterior, for any observation.
        """
        theta, x = valid_pairs(simulations, self.prior)
        theta_space, x_space = fit_theta_space(theta), fit_x_space(x)
        t = apply_space(theta_space, jnp.asarray(theta, jnp.float32))
        w = apply_space(x_space, jnp.asarray(x, jnp.float32))
        key_split, key_base, key_energy, key_z = jr.split(jr.key(seed), 4)
        splits = make_splits(key_split, len(theta), members=self.members)
        joint = JointSpace.of(self.prior, theta_space)

        def on_chunk(record):
            if on_metrics is not None:
                on_metrics(stage="training", **record)

        bases = self.base.fit(key_base, t, w, splits)
        fits = [
            fit_tilted(key, joint, bases, t, w, splits, settings=self.training, sees_theta=sees, on_chunk=on_chunk)
            for key, sees in zip(jr.split(key_energy), (False, True), strict=True)
        ]
        fit = simplest_as_good(*fits)
        choice = gated(key_z, joint, bases, fit, t, w, splits, self.training.particles)
        if on_metrics is not None:
            kept = "none" if choice.gain == 0 else "theta-free" if fit is fits[0] else "full"
            on_metrics(
                stage="fitted",
                energy=kept,
                outcome=fit.outcome.name,
                gain=choice.gain,
                log_z=np.asarray(choice.log_z).tolist(),
            )
        return Posterior(self.prior, Ensemble(theta_space, x_space, choice.models, choice.log_z), self.strategy)
