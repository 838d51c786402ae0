r"""Observations with missing entries, for models that can integrate over them exactly: Gaussian bases without energy.

Given t, a Gaussian base is w = m(t) + J(t) v with v ~ N(0, I).  Its density of some coordinates o alone is

    N(w_o; m_o, J_o J_o'),

and transforms of single coordinates from x to w do not change what is missing.  A missing entry is NaN in x and in w.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from unle.errors import InputError
from unle.models.bases import LOG_2PI, AbstractBase, AbstractBaseWrapper, ConditionalGaussian, Repeated, without_views
from unle.models.likelihood import (
    AbstractLikelihood,
    EnergyLikelihood,
    EnergyModel,
    Ensemble,
    Mixture,
    NoEnergy,
    OverCells,
)
from unle.models.theta_factors import GivenValid
from unle.space.standardise import REDUNDANT

REMEDY = "try leaving these coordinates out of x, and fit again: AUNLE(prior).fit((theta, x[:, kept]))."


class MarginalGaussian(AbstractBaseWrapper):
    """A Gaussian base whose density leaves out the coordinates of w that are NaN."""

    base: AbstractBase  # whose `unwhiten` is affine in v ~ N(0, I)

    def log_density(self, t, w):
        """Return the log-density of the coordinates that are there."""
        return self.log_density_and_features(t, w)[0]

    def log_density_and_features(self, t, w):
        """Return the same, and residuals that no energy looks at."""
        there = ~jnp.isnan(w)
        k = w.shape[0]
        zero = jnp.zeros(k, w.dtype)
        mean, spread = self.base.unwhiten(t, zero), jax.jacfwd(lambda v: self.base.unwhiten(t, v))(zero)
        # A missing coordinate becomes independent noise of unit variance, at zero: a factor of exactly phi(0).
        rows = jnp.concatenate([jnp.where(there[:, None], spread, 0.0), jnp.diag(jnp.where(there, 0.0, 1.0))], 1)
        root = jnp.linalg.qr(rows.T, mode="r")
        left = jnp.where(there, jnp.where(there, w, 0.0) - mean, 0.0)
        z = solve_triangular(root.T, left, lower=True)
        log_det = jnp.sum(jnp.log(jnp.abs(jnp.diagonal(root))))
        return -0.5 * (jnp.sum(z**2) + jnp.sum(there) * LOG_2PI) - log_det, z

    def features(self, t, w):
        """Return what no energy looks at."""
        return w

    def features_whitened(self, t, v):
        """Return the same."""
        return v


def with_missing_data(likelihood: AbstractLikelihood, missing: np.ndarray) -> Any:
    """Return a likelihood for observations (rows, dim_x) in which some entries are NaN, or say why there is none."""
    if why := _obstacle(likelihood):
        raise InputError(f"expected a complete x_o: {why}; {REMEDY}")
    space = likelihood.space_of_x()
    assert space is not None
    gone = np.any(missing, axis=0)
    for place, i in enumerate(space.redundant):
        sources = np.array(space.modelled)[np.abs(np.asarray(space.weights[place])) > REDUNDANT]
        if gone[sources].any():
            raise InputError(
                f"expected x_o[{sources[gone[sources]][0]}], from which x_o[{i}] follows; got NaN; {REMEDY}"
            )
    return jax.tree.map(
        lambda node: EnergyModel(MarginalGaussian(without_views(node.base)), NoEnergy()) if _is_model(node) else node,
        likelihood,
        is_leaf=_is_model,
    )


def _is_model(node: Any) -> bool:
    return isinstance(node, EnergyModel)


def _obstacle(likelihood: Any) -> str:
    """Return why a likelihood cannot do without some entries; nothing if it can."""
    if isinstance(likelihood, GivenValid | OverCells):
        return _obstacle(likelihood.likelihood)
    if isinstance(likelihood, Mixture):
        return _obstacle(likelihood.members)
    if not isinstance(likelihood, EnergyLikelihood | Ensemble):
        return f"entries that are missing cannot be integrated over in a {type(likelihood).__name__}"
    model = likelihood.models if isinstance(likelihood, Ensemble) else likelihood.model
    if not isinstance(model.energy, NoEnergy):
        return "the model has an energy, whose integral over entries that are missing is not known"
    base = without_views(model.base)
    base = without_views(base.one) if isinstance(base, Repeated) else base
    name = type(base).__name__
    return "" if isinstance(base, ConditionalGaussian) else f"the model's base, {name}, cannot leave entries out"
