"""What methods have in common: a prior and settings, which are checked, and `fit` of those that are not sequential."""

import abc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import equinox as eqx

from unle.arrays import brief
from unle.errors import InputError
from unle.methods.metrics import no_metrics
from unle.methods.simulation_inputs import with_column_names
from unle.posterior import Posterior
from unle.progress import progress
from unle.space import Prior, check_prior


class AbstractMethod(eqx.Module):
    """A way to learn a posterior from simulations of draws of a prior."""

    prior: eqx.AbstractVar[Prior]

    def __check_init__(self):
        check_prior(self.prior, self)
        members = getattr(self, "members", 1)
        if members < 1:
            raise InputError(f"expected at least one ensemble member; got {members}; try members=4.")

    def __repr__(self) -> str:
        """Show the prior and the settings that differ from the defaults."""
        return brief(self)


class AbstractAmortised(AbstractMethod):
    """A method that learns the posterior of every observation from one set of simulations."""

    @progress("Fitting the likelihood")
    def fit(
        self,
        simulations: Any,
        *,
        seed: int = 0,
        on_metrics: Callable[..., None] | None = None,
        memory: int | float | str | None = None,
    ) -> Posterior:
        """Fit the likelihood, and return the posterior for any observation.

        Args:
            simulations: from `unle.simulate`, or a pair (theta, x) of arrays, one row per simulation, with theta drawn
                from the prior; or an open `SimulationStore`, which may hold more of them than fit in memory.
            seed: fixes the fit: the same simulations in any order (if they fit in memory), on the same kind of machine
                with the same versions, give the same posterior to the bit; other machines round differently.
            on_metrics: called with keyword arguments, once per chunk of training as it ends and once with the
                summary of the fit; `RunDirectory.append_metrics` writes them down.
            memory: bytes, or such as "2GB", that the simulations of a store may take; if they need more, training sees
                them through a window of so many bytes, which is renewed as it goes on. Half of the machine's by
                default. The networks and the library itself take some hundred megabytes besides.
        """
        method = replace(self, prior=with_column_names(self.prior, simulations))
        return method._fit(simulations, seed, no_metrics if on_metrics is None else on_metrics, memory)

    @abc.abstractmethod
    def _fit(
        self, simulations: Any, seed: int, metrics: Callable[..., None], memory: int | float | str | None
    ) -> Posterior:
        """Fit the likelihood; `metrics` takes what there is to write down."""
