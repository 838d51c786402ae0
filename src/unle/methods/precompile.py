"""Compile the sampler of the posterior in another thread while its energies are trained.

Compiling needs shapes, not numbers, and takes about as long as training.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from unle.methods.region_fit import RegionFit
from unle.methods.training_pairs import Pairs
from unle.models import AbstractBase, AbstractLikelihood, EnergyModel, Ensemble, length_seen, reach_of
from unle.posterior import AbstractPosteriorSampler, precompile_sampler
from unle.space import Prior
from unle.space.host_device import on_device
from unle.train import EnergyTraining


def sampler_compiled_for(
    prior: Prior,
    training: EnergyTraining,
    data: Pairs | RegionFit,
    bases: AbstractBase,
    sampler: AbstractPosteriorSampler,
    *,
    wrap: Callable[[Ensemble], AbstractLikelihood],
) -> AbstractContextManager[Any]:
    """Compile, while the block runs, the sampler of the posterior that training on such data leads to.

    Bases are as energies see them; `wrap` is what becomes of the ensemble before it is sampled.
    """
    members, sizes = data.rows.members, (data.rows.t.shape[1], data.rows.w.shape[1])

    def likelihood() -> AbstractLikelihood:
        reach = reach_of(bases, sizes[1], members=members)
        energies = training.untrained(sizes[0], length_seen(bases, *sizes), members=members, reach=reach)
        zeros = on_device(np.zeros(members))
        return wrap(Ensemble(data.theta_space, data.x_space, EnergyModel(bases, energies), zeros))

    return precompile_sampler(prior, likelihood, sampler)
