"""Simulations as a conditional likelihood wants them: standardised pairs, and what is known of those that failed."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unle.methods.inputs import apply_space, as_simulations, valid_pairs
from unle.models import DoublyIntractableLikelihood, TractableLikelihood, with_validity
from unle.space import Prior, ThetaSpace, XSpace, fit_theta_space, fit_x_space
from unle.train import fit_validity


class Pairs(NamedTuple):
    """Standardised pairs.

    Attributes:
        theta_space: standardises theta.
        x_space: standardises x.
        t: standardised parameters of the valid simulations.
        w: their standardised data.
        theta: parameters of all simulations, raw.
        valid: which of them are valid.
    """

    theta_space: ThetaSpace
    x_space: XSpace
    t: Float[Array, "n dim"]
    w: Float[Array, "n data"]
    theta: Float[np.ndarray, "all dim"]
    valid: np.ndarray

    def given_valid(
        self, key: PRNGKeyArray, likelihood: TractableLikelihood | DoublyIntractableLikelihood
    ) -> TractableLikelihood | DoublyIntractableLikelihood:
        """Multiply by P(valid given theta), learned from all simulations, if some of them failed."""
        if self.valid.all():
            return likelihood
        return with_validity(likelihood, fit_validity(key, self.theta, self.valid).validity)


def standardised_pairs(simulations: Any, prior: Prior) -> Pairs:
    """Return the pairs of a set of simulations, or say what is wrong with them."""
    simulations = as_simulations(simulations)
    theta, x = valid_pairs(simulations, prior, warn=False)  # what failed is taken into account by `given_valid`
    theta_space, x_space = fit_theta_space(theta), fit_x_space(x)
    t = apply_space(theta_space, jnp.asarray(theta, jnp.float32))
    w = apply_space(x_space, jnp.asarray(x, jnp.float32))
    return Pairs(theta_space, x_space, t, w, np.asarray(simulations.theta, float), np.asarray(simulations.valid))
