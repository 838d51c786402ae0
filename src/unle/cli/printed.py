"""`--paper` on the command line: which options the algorithms of the paper take, and how they are built from them."""

from typing import Any

from unle.errors import InputError
from unle.methods import AUNLE, SUNLE, ByExchange, Divi, Online
from unle.methods.paper_aunle import PaperAUNLE
from unle.methods.paper_sunle import PaperSUNLE

NORMALISERS = {"exchange": ByExchange(), "divi": Divi(), "online": Online()}


def build_as_printed(request: Any) -> PaperAUNLE | PaperSUNLE:
    """Return the paper's method of a request with its settings."""
    model = request.model
    training: dict[str, Any] = {} if request.iterations is None else {"iterations": request.iterations}
    if request.method == "aunle":
        return AUNLE.paper(model.prior, **training)
    normaliser = NORMALISERS[request.posterior or "exchange"]
    return SUNLE.paper(model.prior, model.simulator, normaliser=normaliser, **training)


def check_printed(request: Any) -> None:
    """Refuse options that the paper's algorithms do not have.

    Raises:
        InputError: there is one.
    """
    if not request.paper:
        return
    if request.method not in ("aunle", "sunle"):
        raise InputError(f"expected --paper with --method aunle or sunle; {request.method} is not of that paper.")
    given = {"--members": request.members, "--every-round": request.every_round, "--repetition": request.repetition}
    for name, value in given.items():
        if value is not None:
            raise InputError(f"expected no {name} with --paper: its algorithms have no such part.")
    if request.memory is not None:
        raise InputError("expected no --memory with --paper: its algorithms hold all simulations in memory.")
    if request.method == "sunle" and request.posterior not in (None, *NORMALISERS):
        raise InputError(
            f"expected --posterior to be {', '.join(NORMALISERS)} with --paper; got {request.posterior!r}, which is no "
            "part of the paper."
        )
