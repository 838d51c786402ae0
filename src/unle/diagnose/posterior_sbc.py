r"""Calibration around one observation: SBC with the posterior itself as the prior.

A sequential run learns a likelihood around x_o, so that data from the whole prior cannot judge it.  Data from its own
posterior can.  Draw theta' from the posterior at x_o and simulate y at it.  If the learned q(y | theta) is right,
theta' is just another draw of

    p(theta | x_o) q(y | theta),

the posterior given both.  Its draws need no sampler: they are those at x_o, with weights q(y | theta).  So the levels
of theta' among them are uniform (see `calibration`), parameter by parameter; so are those of log q(y | theta) and log
q(x_o | theta), which look at all parameters together.

The draws that theta' is ranked among come from other chains than theta' itself, but all theta' share them.  With N of
the ones and L effective draws of the others their common error multiplies the variance of the test by 1 + N / L.

What it sees: a wrong q(y | theta) for data like the observed, and a normaliser Z(theta) that varies there.  What it
misses: whatever went wrong on the way to the posterior.  A mode that was lost, and an error of q at x_o itself, which
is one point among all y, give another prior, for which the test is as right as for the true one.

Reference: Sailynoja, Schmitt, Burkner and Vehtari, "Posterior SBC: simulation-based calibration checking conditional
on data", 2025.
"""

import numpy as np

from unle.diagnose.calibration import Calibration
from unle.diagnose.likelihoods import at_every, at_own
from unle.diagnose.record import Check, NotMade, bonferroni
from unle.diagnose.sbc import MEANS, advice_for, judged, require
from unle.diagnose.twins import Twins
from unle.diagnose.uniformity import uniformity
from unle.diagnose.within import without_region
from unle.models import TractableLikelihood
from unle.posterior import Draws

TITLE = "Calibration around x_o (posterior SBC)"
QUESTION = "Is the learned likelihood right for data like the observed, at the inferred parameters?"
DRAWS = 2000  # that are weighed; four times as many where few of them carry the weight
PLENTY = 100  # effective ones in the median, with which the first are enough
FEWEST = 50  # posteriors
OF_Y, OF_X_O = "log q(y | theta)", "log q(x_o | theta)"


def posterior_sbc(around: Calibration, *, effective: float) -> Check:
    """Check the levels of every parameter, and of both log-likelihoods.

    Args:
        around: posteriors given x_o and one more simulation each; the names end with those of the log-likelihoods.
        effective: independent draws that all of them share.

    Returns:
        A `Check` with the levels (n, dim + 2) as array `levels`.
    """
    require(around)
    columns = range(around.truth.shape[1])
    levels = np.stack([around.levels(around.draws[..., i], around.truth[:, i], stream=i) for i in columns], axis=1)
    tests = [uniformity(column, variance=1 + len(around) / effective) for column in levels.T]
    p_value = bonferroni([test.p_value for test in tests])
    worst = int(np.argmin([test.p_value for test in tests]))
    gap = max(test.gap for test in tests)
    verdict = judged(p_value, gap, around)
    name = around.names[worst]
    manner = MEANS[tests[worst].direction] if worst < around.truth.shape[1] - 2 else "not what it should be"
    what = f"Given one more simulation like x_o, the posterior of {name} is {manner}"
    numbers = {"p": p_value, "posteriors": len(around), "effective_draws": around.effective, "largest_gap": gap}
    advice = advice_for(verdict, p_value, around, what)
    return Check("posterior_sbc", TITLE, QUESTION, verdict, numbers, advice, {"levels": levels}, around.names)


def calibrate_around(
    likelihood: TractableLikelihood, draws: Draws, twins: Twins, *, ess: float, seed: int = 0
) -> tuple[Calibration, float]:
    """Weigh the draws at x_o by one more simulation at some of them.

    Args:
        likelihood: of the posterior.
        draws: of the posterior at x_o.
        twins: simulations at some of them, of which the first counts.
        ess: effective number of the draws.
        seed: of the ties.

    Returns:
        The posteriors, and the number of independent draws that they share.
    """
    usable = np.flatnonzero(twins.valid[:, 0])
    # Neighbours in a chain are copies of each other where few draws are effective.
    wanted = min(len(usable), int(ess / 2))
    if wanted < FEWEST:
        raise NotMade(f"{FEWEST} valid simulations at independent draws are needed; there are {wanted}.")
    usable = usable[np.linspace(0, len(usable) - 1, wanted).astype(int)]
    for most in (DRAWS, 4 * DRAWS):
        around, shared = _weighed(without_region(likelihood), draws, twins, usable, most, ess=ess, seed=seed)
        if around.effective >= PLENTY or len(draws) <= most:
            break
    return around, shared


def _weighed(
    likelihood: TractableLikelihood, draws: Draws, twins: Twins, usable: np.ndarray, most: int, *, ess: float, seed: int
) -> tuple[Calibration, float]:
    values = np.asarray(draws, np.float32)
    chosen = np.linspace(0, len(values) - 1, min(len(values), most)).astype(int)
    theta, truth = values[chosen], np.asarray(twins.theta[usable], np.float32)
    # One chain is taken for two: its halves.
    length = draws.values.shape[1] if draws.values.shape[0] > 1 else -(-len(values) // 2)
    own = (chosen // length)[None] == (twins.index[usable] // length)[:, None]
    share = 1 - float(own.mean())
    y = twins.x[usable, 0]
    at_y = at_every(likelihood, theta, y)
    at_x_o = at_every(likelihood, np.concatenate([theta, truth]), draws.x_o[None])[0]
    at_truth = at_own(likelihood, truth, y)
    n, kept = len(usable), len(chosen)
    points = np.concatenate(
        [
            np.broadcast_to(theta, (n, *theta.shape)),
            at_y[..., None],
            np.broadcast_to(at_x_o[:kept, None], (n, kept, 1)),
        ],
        axis=2,
    )
    names = (*draws.names, OF_Y, OF_X_O)
    truths = np.concatenate([truth, at_truth[:, None], at_x_o[kept:, None]], axis=1)
    weights = np.where(own, -np.inf, at_y)
    around = Calibration(names, truths, y.reshape(n, -1), points, weights, at_truth, seed=seed)
    return around, max(share * min(ess, kept), 1.0)
