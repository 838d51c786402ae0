"""From settings to a method; options that the method would ignore are refused."""

from dataclasses import replace
from typing import Any

from unle.cli.settings import RunSettings
from unle.errors import InputError
from unle.methods import AUNLE, NLE, SMNLE, SNLE, SUNLE, ByExchange, Divi, Online, Tilted
from unle.methods.abstract_method import round_sizes
from unle.methods.sunle import PROPOSALS
from unle.methods.training_pairs import FEWEST, as_bytes
from unle.models import Maf, SplineFlow
from unle.train import Descent, EnergyTraining, LearnedSummary, ScoreMatching

METHODS = ("aunle", "sunle", "nle", "snle", "smnle")
FLOWS = {"maf": Maf(), "spline": SplineFlow()}
NORMALISERS = {"tilted": Tilted(), "divi": Divi(), "online": Online(), "exchange": ByExchange()}
NORMALISERS_OF_SMNLE = ("divi", "exchange")
NORMALISERS_OF_THE_PAPER = ("exchange", "divi", "online")


def build(settings: RunSettings, model: Any) -> Any:
    """Return the method, a front-end of `unle` with `fit` or, if it is sequential, with `begin`."""
    iterations, prior = settings.iterations, model.prior
    parts: dict[str, Any] = {} if settings.members is None else {"members": settings.members}
    if settings.method == "smnle":
        if iterations is not None:
            parts["training"] = ScoreMatching(descent=Descent(iterations=iterations))
        if settings.normaliser == "exchange":
            parts["normaliser"] = None
        return SMNLE(prior, sliced=bool(settings.sliced), **parts)
    if settings.method in ("nle", "snle"):
        parts["flow"] = FLOWS[settings.flow or "maf"]
        if iterations is not None:
            parts["training"] = Descent(iterations=iterations)
        return NLE(prior, **parts) if settings.method == "nle" else SNLE(prior, model.simulator, **parts)
    if settings.paper:
        training: dict[str, Any] = {} if iterations is None else {"iterations": iterations}
        if settings.method == "aunle":
            return AUNLE.paper(prior, **training)
        normaliser: Any = NORMALISERS[settings.normaliser or "exchange"]
        return SUNLE.paper(prior, model.simulator, normaliser=normaliser, **training)
    if iterations is not None:
        base: Any = SUNLE.base if settings.method == "sunle" else AUNLE.base
        parts["base"] = replace(base, iterations=iterations)
    if settings.summary is not None:
        parts["summary"] = LearnedSummary()
    if settings.method == "sunle":
        normaliser = NORMALISERS[settings.normaliser or "tilted"]
        if iterations is not None:
            parts["training"] = replace(normaliser.energies, iterations=iterations)
        if settings.proposals is not None:
            parts["proposals"] = settings.proposals
        return SUNLE(prior, model.simulator, normaliser=normaliser, **parts)
    if iterations is not None:
        parts["training"] = EnergyTraining(iterations=iterations)
    if settings.repetition is not None:
        parts["repetition"] = settings.repetition
    return AUNLE(prior, **parts)


def check_settings(settings: RunSettings) -> None:
    """Refuse settings that no method has, or that theirs would ignore."""
    method, normaliser = settings.method, settings.normaliser
    if method not in METHODS:
        raise InputError(f"expected a method among {', '.join(METHODS)}; got {method!r}.")
    if settings.flow is not None and method not in ("nle", "snle"):
        raise InputError(f"expected --flow with --method nle or snle; {method} has no flow.")
    if settings.flow not in (None, *FLOWS):
        raise InputError(f"expected --flow to be {' or '.join(FLOWS)}; got {settings.flow!r}.")
    if settings.summary not in (None, "learned"):
        raise InputError(
            f"expected --summary learned; got {settings.summary!r}; for one of your own, let the simulator return it."
        )
    if settings.summary is not None and method not in ("aunle", "sunle"):
        raise InputError(f"expected --summary with --method aunle or sunle; {method} takes x as it is.")
    if settings.sliced and method != "smnle":
        raise InputError(f"expected --sliced with --method smnle; {method} matches no scores.")
    if method == "smnle" and normaliser not in (None, *NORMALISERS_OF_SMNLE):
        raise InputError(f"expected --normaliser to be {' or '.join(NORMALISERS_OF_SMNLE)}; got {normaliser!r}.")
    if method == "smnle" and settings.members is not None:
        raise InputError("expected no --members with --method smnle, which has one.")
    if settings.paper:
        _check_paper(settings)
    if normaliser not in (None, *NORMALISERS):
        raise InputError(f"expected --normaliser to be {', '.join(NORMALISERS)}; got {normaliser!r}.")
    if settings.proposals not in (None, *PROPOSALS):
        raise InputError(f"expected --proposals to be {', '.join(PROPOSALS)}; got {settings.proposals!r}.")
    if settings.sizes is not None and settings.budget is not None:
        round_sizes(settings.budget, settings.sizes)
    elif settings.budget is not None and settings.budget < FEWEST:
        raise InputError(
            f"expected a budget of {FEWEST} simulations or more; got {settings.budget}; try --budget 1000."
        )
    if settings.memory is not None and settings.is_sequential:
        raise InputError("expected --memory with --method aunle, nle or smnle: rounds are held in memory as a whole.")
    as_bytes(settings.memory)


def _check_paper(settings: RunSettings) -> None:
    """Refuse options that the paper's algorithms do not have."""
    if settings.method not in ("aunle", "sunle"):
        raise InputError(f"expected --paper with --method aunle or sunle; {settings.method} is not of that paper.")
    given = {
        "--members": settings.members,
        "--proposals": settings.proposals,
        "--repetition": settings.repetition,
        "--summary": settings.summary,
    }
    for name, value in given.items():
        if value is not None:
            raise InputError(f"expected no {name} with --paper: its algorithms have no such part.")
    if settings.memory is not None:
        raise InputError("expected no --memory with --paper: its algorithms hold all simulations in memory.")
    if settings.method == "sunle" and settings.normaliser not in (None, *NORMALISERS_OF_THE_PAPER):
        raise InputError(
            f"expected --normaliser to be {', '.join(NORMALISERS_OF_THE_PAPER)} with --paper; "
            f"got {settings.normaliser!r}, which is no part of the paper."
        )
