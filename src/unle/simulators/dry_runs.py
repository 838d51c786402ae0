"""A few simulations that tell how long a whole budget will take, and what comes back.

Example:
    >>> import numpy as np, unle
    >>> class Box:
    ...     def sample(self, n, *, seed=0):
    ...         return np.random.default_rng(seed).uniform(size=(n, 2))
    >>> look = unle.dry_run(lambda theta, rng: {"mean": rng.normal(theta[0]), "counts": [1, 2]}, Box(), budget=1000)
    >>> look.dim_x, look.names
    (3, ('mean', 'counts[0]', 'counts[1]'))
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from unle.progress import silence
from unle.simulators.jax_simulators import JaxSimulator
from unle.simulators.piece import BLOCK_ROWS, Batched, Piece, batched, explains
from unle.simulators.run_round import Samples, check_simulator, simulate_at
from unle.simulators.simulations import Simulations, count_reasons

MOST_SIMULATIONS, MOST_SECONDS = 20, 10.0  # it ends after so many simulations, or after about so many seconds

NOT_REPEATABLE = (
    "randomness: the same generator gave other data when it was tried again, so that runs cannot be repeated; "
    "take all random numbers from the generator that the simulator is given"
)


@dataclass(frozen=True)
class DryRun:
    """What a few simulations showed."""

    dim_theta: int  # number of parameters
    dim_x: int  # length of a data vector; 0 if no simulation was valid, unless the simulator explains its failures
    dtype: str  # kind of numbers that the simulator returns; they are stored as float64
    names: tuple[str, ...]  # of the entries of x, if the simulator names them
    tried: int  # number of simulations
    valid: int  # how many of them were valid
    reasons: str  # why the others were invalid, with counts, as one text
    seconds: float  # mean time of one simulation, without the first, which may load or compile something
    slowest: float  # seconds of the slowest one
    budget: int  # the number of simulations that is planned
    workers: int  # the number of workers that is planned
    first_traceback: str | None = None  # of the first failure
    first_reason: str = ""  # why the first one was invalid, in full
    repeatable: bool = True  # whether equal random generators gave equal data, where that was tried

    @property
    def total(self) -> float:
        """Estimated seconds of the whole budget."""
        return self.seconds * self.budget / self.workers

    def __str__(self) -> str:
        names = f" ({', '.join(self.names[:12])}{', ...' if len(self.names) > 12 else ''})" if self.names else ""
        lines = [
            f"theta: {self.dim_theta} numbers",
            f"x: {self.dim_x} numbers{names}, {self.dtype}" if self.dim_x else "x: nothing valid came back",
            f"valid: {self.valid} of {self.tried}{f' ({self.reasons})' if self.reasons else ''}",
            *([f"the first invalid one: {self.first_reason}"] if self.first_reason else []),
            f"time: {duration(self.seconds)} per simulation, at most {duration(self.slowest)}",
            *([] if self.repeatable else [NOT_REPEATABLE]),
            f"estimate: {duration(self.total)} for {self.budget:,} simulations with {self.workers} worker"
            f"{'s' if self.workers > 1 else ''}",
        ]
        return "\n".join(lines)


def dry_run(
    simulator: Callable,
    prior: Samples,
    *,
    budget: int = 1000,
    workers: int | None = None,
    timeout: float | None = None,
    seed: int = 0,
) -> DryRun:
    """Simulate a few times and tell what to expect: shape, names, failures, time.

    Nothing is stored.

    Args:
        simulator: of any kind.
        prior: anything with `sample(n, seed=...)`.
        budget: the number of simulations that you plan.
        workers: the number of processes that you plan; here one is used. None simulates in this process.
        timeout: seconds that one simulation may take.
        seed: decides the parameters.

    Returns:
        A record that prints as a few lines.

    Example:
        >>> import unle
        >>> prior = unle.Prior.uniform(low=[-1.0], high=[1.0])
        >>> unle.dry_run(lambda theta, rng: theta + 0.1 * rng.normal(), prior, budget=1000)  # doctest: +SKIP
    """
    check_simulator(simulator, prior)
    block = BLOCK_ROWS if isinstance(simulator, Batched) else getattr(simulator, "batch", 1)
    theta = np.asarray(prior.sample(max(MOST_SIMULATIONS, block), seed=seed), dtype=np.float64)
    if isinstance(simulator, JaxSimulator):
        simulator.run(Piece(theta[:block], np.arange(block), seed, 0))  # compiles, which is not timed
    protected = workers is not None or timeout is not None
    watched = simulator if protected or isinstance(simulator, JaxSimulator) else _Watched(simulator)
    wrapped = batched(watched) if isinstance(simulator, Batched) else watched
    options = {"seed": seed, "workers": 1 if workers is not None else None, "timeout": timeout}
    with silence():
        pieces = [simulate_at(wrapped, theta[:block], **options)]
        repeatable = True
        affordable = int(MOST_SECONDS / max(float(pieces[0].seconds.sum()), 1e-6))
        if affordable > 2:
            repeatable = _is_same(pieces[0].x, simulate_at(wrapped, theta[:block], **options).x)
        if block == 1 and affordable:
            pieces.append(simulate_at(wrapped, theta[1 : 1 + min(affordable, MOST_SIMULATIONS - 1)], **options))
    simulations = Simulations.joined([piece for piece in pieces if piece.x.shape[1]] or pieces[:1])
    seconds = np.concatenate([piece.seconds for piece in pieces])
    reasons = [reason for piece in pieces for reason in piece.reasons]
    return DryRun(
        dim_theta=theta.shape[1],
        dim_x=simulations.x.shape[1] if simulations.valid.any() or explains(simulator) else 0,
        dtype=getattr(watched, "kind", "float"),
        names=simulations.x_names,
        tried=len(seconds),
        valid=sum(not reason for reason in reasons),
        reasons=count_reasons(reasons),
        seconds=float((seconds[1:] if len(seconds) > 1 and block == 1 else seconds).mean()),
        slowest=float(seconds.max()),
        budget=budget,
        workers=workers or 1,
        first_traceback=next((piece.first_traceback for piece in pieces if piece.first_traceback), None),
        first_reason=next((reason for reason in reasons if reason), ""),
        repeatable=repeatable,
    )


class _Watched:
    """A simulator that remembers what kind of numbers it returned."""

    def __init__(self, simulator: Callable):
        self._simulator, self.kind = simulator, "float"
        self.explain = getattr(simulator, "explain", None)

    def __call__(self, theta: np.ndarray, rng: np.random.Generator) -> Any:
        result = self._simulator(theta, rng)
        values = list(result.values()) if hasattr(result, "values") else [result]
        self.kind = " and ".join(sorted({str(np.asarray(value).dtype) for value in values}))
        return result


def duration(seconds: float) -> str:
    """Return a time in words: 3 ms, 12 s, 5 min, 3.2 h."""
    for size, unit in ((86400.0, "days"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def _is_same(x: np.ndarray, again: np.ndarray) -> bool:
    """Return whether data are the same, but for what an accelerator rounds."""
    return x.shape == again.shape and np.allclose(x, again, rtol=1e-4, atol=0.0, equal_nan=True)
