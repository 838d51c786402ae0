"""The sampler of energies that are still in training, compiled meanwhile on another core."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax
import numpy as np

from unle.methods.pairs import Pairs
from unle.methods.rounds import Fitting
from unle.models import AbstractBase, AbstractLikelihood, Ensemble, TiltedModel, length_seen, reach_of
from unle.posterior import AbstractPosteriorSampler, precompile_sampler
from unle.space import Prior
from unle.space.host_device import on_device
from unle.train import TiltedTraining


def sampler_ahead(
    prior: Prior,
    training: TiltedTraining,
    data: Pairs | Fitting,
    bases: AbstractBase,
    sampler: AbstractPosteriorSampler,
    *,
    of: Callable[[Ensemble], AbstractLikelihood] = lambda ensemble: ensemble,
) -> AbstractContextManager[Any]:
    """Compile, while the body runs, the sampler of the posterior that training leads to.

    Args:
        prior: of theta.
        training: of the energies; tells their shapes.
        data: that they are trained on.
        bases: of the members.
        sampler: the sampler.
        of: what becomes of the ensemble before it is sampled.
    """
    members = len(data.splits.train)
    sizes = data.t.shape[1], data.w.shape[1]

    def likelihood() -> AbstractLikelihood:
        reach = reach_of(bases, sizes[1], members=members)
        energies = training.untrained(sizes[0], length_seen(bases, *sizes), members=members, reach=reach)
        models = TiltedModel(bases, energies)
        return of(Ensemble(data.theta_space, data.x_space, models, on_device(np.zeros(members))))

    return precompile_sampler(prior, likelihood, sampler)


def alike(one: Any, other: Any) -> bool:
    """Return whether one compiled program serves both."""
    shapes = [[(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(tree)] for tree in (one, other)]
    return jax.tree.structure(one) == jax.tree.structure(other) and shapes[0] == shapes[1]
