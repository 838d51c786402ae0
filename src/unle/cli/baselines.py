"""The baselines on the command line: which options they take, and how they are built from them."""

from typing import Any

from unle.errors import InputError
from unle.methods import NLE, SMNLE, SNLE
from unle.models import Maf, SplineFlow
from unle.train import Descent, ScoreMatching

BASELINES = ("nle", "snle", "smnle")
SEQUENTIAL = ("sunle", "snle")  # methods that simulate in rounds around one observation
FLOWS = {"maf": Maf(), "spline": SplineFlow()}
POSTERIORS = ("divi", "exchange")  # of smnle


def build_baseline(request: Any) -> NLE | SNLE | SMNLE:
    """Return the baseline of a request with its settings."""
    model = request.model
    parts: dict[str, Any] = {} if request.iterations is None else {"training": Descent(iterations=request.iterations)}
    if request.method == "smnle":
        if request.iterations is not None:
            parts["training"] = ScoreMatching(descent=parts["training"])
        if request.posterior == "exchange":
            parts["normaliser"] = None
        return SMNLE(model.prior, sliced=bool(request.sliced), **parts)
    parts["flow"] = FLOWS[request.flow or "maf"]
    if request.members is not None:
        parts["members"] = request.members
    return NLE(model.prior, **parts) if request.method == "nle" else SNLE(model.prior, model.simulator, **parts)


def check_options(request: Any) -> None:
    """Refuse options that the method would ignore.

    Raises:
        InputError: there is one, or its value is unknown.
    """
    method = request.method
    if request.flow is not None and method not in ("nle", "snle"):
        raise InputError(f"expected --flow with --method nle or snle; {method} has no flow.")
    if request.flow not in (None, *FLOWS):
        raise InputError(f"expected --flow to be {' or '.join(FLOWS)}; got {request.flow!r}.")
    if request.sliced and method != "smnle":
        raise InputError(f"expected --sliced with --method smnle; {method} matches no scores.")
    if method == "smnle" and request.posterior not in (None, *POSTERIORS):
        raise InputError(f"expected --posterior to be {' or '.join(POSTERIORS)}; got {request.posterior!r}.")
    if method == "smnle" and request.members is not None:
        raise InputError("expected no --members with --method smnle, which has one.")
