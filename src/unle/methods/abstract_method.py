"""What methods have in common: settings that are checked, `fit` of those that are not sequential, and what a fit tells.

A fit tells numbers for the record, and one line for the user.
"""

import abc
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import equinox as eqx
import numpy as np

from unle.arrays import brief
from unle.errors import InputError, Outcome, UnleWarning
from unle.methods.energy_selection import Selected
from unle.methods.round_history import Round, lost, recovered
from unle.methods.simulation_inputs import with_column_names
from unle.posterior import Posterior
from unle.progress import progress, tell
from unle.space import Prior, check_prior
from unle.train import Certificate, PaperFit, ValidityFit


def no_metrics(**record: Any) -> None:
    """Write nothing down."""


def record_fit(metrics: Callable[..., None], selected: Selected, certificate: Certificate, **more: Any) -> None:
    """Write down what a fit came to, and what stands behind it."""
    choice, numbers = selected.choice, certificate._asdict()
    nats, error = numbers.pop("information"), numbers.pop("information_error")
    if nats is not None:
        metrics(stage="information", nats=nats, error=error)
    if choice.certificate is not None:  # bases are normalised by themselves
        metrics(stage="certificate", **numbers)
    metrics(
        stage="fitted",
        energy=selected.kind,
        noise=selected.noise,
        autoregressive=selected.is_autoregressive,
        sentence=selected.sentence,
        outcome=selected.fit.outcome.name,
        gain=choice.gain,
        replaced=choice.replaced,
        log_z=np.asarray(choice.log_z).tolist(),
        **more,
    )


def record_validity(metrics: Callable[..., None], fit: ValidityFit | None) -> None:
    """Write down how well P(valid | theta) is calibrated, if it was learned."""
    if fit is not None:
        metrics(stage="validity", **{name: value for name, value in fit._asdict().items() if name != "validity"})


def tell_user(selected: Selected, certificate: Certificate) -> None:
    """Say in one line what was kept, and warn of a fit that learned nothing."""
    tell(selected.sentence)
    if certificate.information is not None and not certificate.knows_theta:
        warnings.warn(
            "the fit is no better than one that ignores theta: either the data carry no information about the "
            "parameters, or it was not learned; the posterior is about the prior.",
            UnleWarning,
            stacklevel=3,
        )


def record_printed_fit(metrics: Callable[..., None], fit: PaperFit, *, recoveries: int) -> None:
    """Write down how the training of the paper's energy ended, and how often those of all rounds had to recover."""
    last = fit.history[-1]
    metrics(
        stage="fitted",
        energy="as printed",
        gain=fit.gain,
        outcome=fit.outcome.name,
        recoveries=recoveries,
        chunks=len(fit.history),
        acceptance=last["acceptance"],
        gap=last["gap"],
    )


def warn_of_divergence(fits: Sequence[PaperFit], *, instead: str) -> None:
    """Warn of energies of the paper, of all rounds, that should not be used as they are; name another method to try."""
    diverged = sum(fit.outcome is Outcome.DIVERGED for fit in fits)
    if diverged:
        rounds = "" if len(fits) == 1 else f" in {diverged} of {len(fits)} rounds"
        warnings.warn(
            f"the energy diverged{rounds}, and smaller steps did not help: the one with the best held-out likelihood "
            f"before is used; try a smaller learning_rate, or {instead}.",
            UnleWarning,
            stacklevel=3,
        )


def record_losses(metrics: Callable[..., None], history: Sequence[Round]) -> None:
    """Write down if x_o was lost in one of the rounds, and whether it was found again."""
    found_again = recovered(history)
    reason = lost(history) or found_again
    if reason is not None:
        metrics(stage="lost", reason=reason, recovered=found_again is not None)


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
