"""Exact draws by rejection: keep a proposal with probability w / max w."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from unle.errors import InputError

# Proposals in all before giving up: a posterior that keeps none of them is not one to sample by rejection.
MOST_PROPOSALS = 20_000_000
SMALLEST_BATCH, LARGEST_BATCH = 4000, 400_000  # the first must be large enough to know max w

Propose = Callable[[int], tuple[Float[np.ndarray, "count dim"], Float[np.ndarray, " count"]]]


@dataclass(frozen=True)
class Accepted:
    """Independent draws and how well the proposal fitted."""

    draws: Float[np.ndarray, "n dim"]
    ess: float  # effective share of the proposals under their weights, 0 ... 1
    proposals: int


def draw_by_rejection(propose: Propose, n: int, rng: np.random.Generator) -> Accepted:
    """Collect n accepted proposals.

    The largest weight seen in all batches bounds w = target / proposal.  A later, larger one thins what was
    kept before, so that all draws pass the same test.

    Args:
        propose: makes that many proposals; returns them with log w, up to a constant, -inf where impossible.
        n: draws wanted.
        rng: source of the acceptance variables.
    """
    kept, log_margins = [], []  # of the kept: log w - log u, to be compared with log max w
    bound, batch, proposals, total, total_of_squares = -np.inf, max(2 * n, SMALLEST_BATCH), 0, 0.0, 0.0
    while True:
        rows, log_weights = propose(batch)
        proposals += batch
        higher = max(bound, float(log_weights.max()))
        if np.isfinite(higher):
            if np.isfinite(bound):
                total, total_of_squares = (
                    total * np.exp(bound - higher),
                    total_of_squares * np.exp(2 * (bound - higher)),
                )
            bound = higher
            weights = np.exp(log_weights - bound)
            total, total_of_squares = total + weights.sum(), total_of_squares + np.sum(weights**2)
            margins = log_weights - np.log(rng.uniform(size=batch))
            kept.append(rows[margins > bound])
            log_margins.append(margins[margins > bound])
        passed = np.concatenate(log_margins) > bound if kept else np.zeros(0, dtype=bool)
        if passed.sum() >= n:
            share = total**2 / total_of_squares / proposals
            return Accepted(np.concatenate(kept)[passed][:n], float(share), proposals)
        if proposals >= MOST_PROPOSALS:
            raise InputError(
                f"expected data that the task can produce; got {passed.sum()} draws from {proposals}"
                " proposals; try an observation inside the simulator's range."
            )
        rate = max(passed.sum() / proposals, 1e-6)
        batch = int(np.clip(1.2 * (n - passed.sum()) / rate, SMALLEST_BATCH, LARGEST_BATCH))
