r"""Amortized UNLE: an energy-based likelihood from one set of prior simulations, for every observation.

1. Standardise theta and x, with marginal transforms chosen from the data.
2. Fit an ensemble of bases q0(x | theta).
3. Train the members' energies by maximum likelihood of the tilted joint model p(theta) q0(x | theta) exp(-E) / Z.
4. Keep the energies if they raise the held-out likelihood above the bases'; estimate the members' constants.

Reference: Glaser et al., "Maximum likelihood learning of unnormalized models for simulation-based inference", 2023.
"""

import warnings
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unle.errors import InputError, UnleWarning
from unle.models import AbstractBase, Ensemble, NoEnergy, TiltedModel
from unle.posterior import AbstractStrategy, Posterior, TemperedSmc
from unle.simulate import Simulations
from unle.space import Prior, fit_theta_space, fit_x_space
from unle.train import (
    AbstractBaseTraining,
    AbstractParticles,
    BaseParticles,
    GaussianTraining,
    JointSpace,
    Splits,
    TiltedFit,
    TiltedTraining,
    fit_tilted,
    make_splits,
    validate,
)

FEWEST = 32  # simulations; fewer cannot be split into training and held-out rows that mean anything

LOWEST_ESS = 0.003  # of the particles that estimate Z_pi: a hundred of 32,768 draws of the base


class AUNLE(eqx.Module):
    """Fit an unnormalised likelihood to prior simulations; the posterior of any observation follows.

    The defaults are meant for every task.  The original algorithm of the paper is
    `AUNLE(prior, base=FixedBase(), training=TiltedTraining(bound=None), members=1)`.

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
    members: int = eqx.field(static=True, default=5)
    strategy: AbstractStrategy = TemperedSmc()

    def __check_init__(self):
        if self.members < 1:
            raise InputError(f"expected at least one ensemble member; got {self.members}; try members=5.")

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
            on_metrics: called with keyword arguments after the fit, once per chunk of training and once with its
                summary; `RunDirectory.append_metrics` writes them down.

        Returns:
            The posterior, for any observation.
        """
        theta, x = self._checked(simulations)
        theta_space, x_space = fit_theta_space(theta), fit_x_space(x)
        t = _apply(theta_space, jnp.asarray(theta, jnp.float32))
        w = _apply(x_space, jnp.asarray(x, jnp.float32))
        key_split, key_base, key_energy, key_z = jr.split(jr.key(seed), 4)
        splits = make_splits(key_split, len(theta), members=self.members)
        joint = JointSpace.of(self.prior, theta_space)

        bases = self.base.fit(key_base, t, w, splits)
        fits = [
            fit_tilted(key, joint, bases, t, w, splits, settings=self.training, sees_theta=sees)
            for key, sees in zip(jr.split(key_energy), (False, True), strict=True)
        ]
        fit = _simplest_as_good(*fits)
        models, log_z, gain = _gated(key_z, joint, bases, fit, t, w, splits, self.training.particles)
        if on_metrics is not None:
            for record in [record for fit in fits for record in fit.history]:
                on_metrics(stage="training", **record)
            kept = "none" if gain == 0 else "theta-free" if fit is fits[0] else "full"
            on_metrics(
                stage="fitted",
                energy=kept,
                outcome=fit.outcome.name,
                gain=gain,
                log_z=np.asarray(log_z).tolist(),
            )
        return Posterior(self.prior, Ensemble(theta_space, x_space, models, log_z), self.strategy)

    def _checked(self, simulations: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return valid rows of theta and x, or say what is wrong with them."""
        if not isinstance(simulations, Simulations):
            try:
                theta, x = simulations
            except (TypeError, ValueError):
                raise InputError(
                    f"expected simulations, or a pair (theta, x); got {type(simulations).__name__}."
                ) from None
            simulations = Simulations.from_arrays(theta, x)
        theta, x = simulations.valid_theta, simulations.valid_x
        if simulations.theta.shape[1] != self.prior.dim:
            raise InputError(
                f"expected theta with {self.prior.dim} columns, as the prior; got {simulations.theta.shape[1]}."
            )
        if not len(theta):
            raise InputError(f"no simulation is valid, so there is nothing to learn from: {simulations.summary()}")
        if len(theta) < FEWEST:
            raise InputError(
                f"expected at least {FEWEST} valid simulations; got {len(theta)}; try a larger budget (1,000 is usual)."
            )
        outside = ~np.asarray(_contains(self.prior, jnp.asarray(theta, jnp.float32)))
        if outside.any():
            row = int(np.argmax(outside))
            raise InputError(
                f"expected theta drawn from the prior; got {int(outside.sum())} rows outside its support, the first "
                f"{theta[row]} in row {row}; try the prior that these simulations came from."
            )
        lost = len(simulations) - len(theta)
        if lost:
            warnings.warn(
                f"{lost} of {len(simulations)} simulations are invalid and left out. The posterior is then the one "
                "given that a simulation is valid: biased where failures depend on theta.",
                UnleWarning,
                stacklevel=3,
            )
        return theta, x


def _simplest_as_good(simple: TiltedFit, full: TiltedFit) -> TiltedFit:
    """Return the theta-free energies unless the full ones are better by more than one standard error.

    Both were scored on the same held-out rows, so their difference row by row has a small standard error.
    """
    if simple.validation is None or full.validation is None:
        return full if simple.validation is None else simple
    difference = np.ravel(np.asarray(full.validation.rows) - np.asarray(simple.validation.rows))
    error = np.std(difference) / np.sqrt(len(difference))
    return full if np.mean(difference) > error else simple


def _gated(
    key: PRNGKeyArray,
    joint: JointSpace,
    bases: AbstractBase,
    fit: TiltedFit,
    t: Float[Array, "n dim"],
    w: Float[Array, "n data"],
    splits: Splits,
    particles: AbstractParticles,
) -> tuple[TiltedModel, Float[Array, " member"], float]:
    """Keep the energies only if, with constants estimated afresh, they raise the held-out likelihood.

    The gain must exceed its standard error: where the base is right, energies differ from zero by chance alone.
    """
    members = splits.train.shape[0]
    alone = TiltedModel(bases, NoEnergy()), jnp.zeros(members), 0.0
    if fit.validation is None:
        return alone
    models = TiltedModel(bases, fit.energies)
    key_pool, key_z = jr.split(key)
    # Fresh particles and keys, not those that chose the chunk: the choice must not flatter itself.
    states = _fresh(jr.split(key_pool, members), joint, bases, t, particles, fit.particles)
    scores = validate(jr.split(key_z, members), joint, models, t, w, splits, particles, states)
    rows = np.ravel(np.asarray(scores.rows))
    gain, error = float(rows.mean()), float(rows.std() / np.sqrt(len(rows)))
    trusted = float(jnp.min(scores.ess)) > LOWEST_ESS
    return (models, scores.log_z, gain) if trusted and gain > error else alone  # NaN is not greater


@eqx.filter_jit
def _fresh(keys, joint: JointSpace, bases: AbstractBase, t, particles: AbstractParticles, states):
    """Draw a new pool where the particles are draws of the base; chains only lend their step sizes."""
    if not isinstance(particles, BaseParticles):
        return states
    return eqx.filter_vmap(lambda key, base: particles.init(key, joint, base, t))(keys, bases)


@eqx.filter_jit
def _apply(space, rows: Float[Array, "n raw"]) -> Float[Array, "n standard"]:
    return jax.vmap(space.forward)(rows)


@eqx.filter_jit
def _contains(prior: Prior, theta: Float[Array, "n dim"]):
    return jax.vmap(prior.contains)(theta)
