"""What a fit tells: numbers for the record, and one line for the user."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from unle.errors import Outcome, UnleWarning
from unle.methods.energy_selection import Selected
from unle.methods.round_history import Round, lost, recovered
from unle.progress import tell
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
