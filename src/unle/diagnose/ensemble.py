r"""Would another seed, or other simulations, have said the same?  The members of the ensemble tell.

The posterior of all members together is drawn, of their mixture or of their geometric mean q; weights q_k(x_o | theta)
/ q(x_o | theta) turn its draws into those of member k alone.  The total variation between the two, 1/2 E|w_k - 1|, is
the share of the posterior on which they disagree: 0 if they are equal, 1 if they have nothing in common.  Members
differ by their seed and by the rows they were trained on, so this is what another seed or another thousand simulations
might have said.  The mixture is as wide as their disagreement, hence honest about it; more simulations would narrow it.
Errors that all members share are not seen.
"""

import numpy as np
from jaxtyping import Float

from unle.diagnose.record import Check, CheckKind, grade

ENSEMBLE_AGREEMENT = CheckKind(
    "ensemble_agreement",
    "Agreement of the ensemble",
    "Would another seed, or other simulations, have said the same?",
)
DISAGREEMENT = (0.35, 0.65)  # doubtful and bad from here on: the mean share of the posterior that is in dispute


def ensemble_agreement(
    member_logs: Float[np.ndarray, "draw member"],
    draws: Float[np.ndarray, "draw dim"],
    names: tuple[str, ...] = (),
    *,
    geometric: bool = False,
) -> Check:
    """Compare members at one observation.

    Args:
        member_logs: log-likelihood of x_o under every member at draws of the posterior of all of them.
        draws: these draws.
        names: of the parameters.
        geometric: whether the draws are of the members' geometric mean, rather than of their mixture.

    Returns:
        A `Check`; array `means`, the posterior mean of every member in standard deviations of the draws.
    """
    logs = np.asarray(member_logs, float)
    together = logs.mean(axis=1, keepdims=True) if geometric else np.logaddexp.reduce(logs, axis=1, keepdims=True)
    ratio = logs - together
    weights = np.exp(ratio - ratio.max(axis=0))
    weights = weights / np.maximum(weights.mean(axis=0), 1e-300)  # each member has a posterior of its own
    disagreement = 0.5 * np.mean(np.abs(weights - 1), axis=0)
    draws = np.asarray(draws, float)
    means = weights.T @ draws / len(draws)
    shift = (means - draws.mean(axis=0)) / np.maximum(draws.std(axis=0), 1e-12)
    typical, largest = float(disagreement.mean()), float(disagreement.max())
    verdict = grade(typical, DISAGREEMENT)
    advice = (
        "The members agree: another seed would have said the same."
        if verdict == "good"
        else "The members disagree at x_o: there are too few simulations like it; simulate more."
    )
    numbers = {
        "disagreement": typical,
        "largest_disagreement": largest,
        "largest_shift_in_sd": float(np.abs(shift).max()),
        "members": logs.shape[1],
    }
    return ENSEMBLE_AGREEMENT.result(verdict, numbers, advice, {"means": shift}, names)
