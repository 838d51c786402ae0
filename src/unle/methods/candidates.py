r"""Energies of three kinds, of which the simplest that is as good is kept.

1. Theta-free: one shape of the residual r for all theta.  All simulations teach it, whatever their theta.
2. Theta-free to begin with: training goes on with small steps and may bend the shape with theta, where data ask for it.
   What all theta have in common stays in common, for instance the weights of a likelihood's modes.
3. Full: trained from nothing, whatever theta does to the shape.

They are trained in this order.  If going on with theta gains nothing, theta has nothing to add, and full energies are
not trained.  If full ones turn out to gain much more than theta-free ones, those that began theta-free are not trusted:
their start led them astray.
"""

from collections.abc import Callable
from functools import reduce

from jaxtyping import PRNGKeyArray

from unle.methods.selection import clearly_better, simplest_as_good
from unle.space.transfer import split
from unle.train import TiltedFit, WarmStart, places

MOSTLY = 0.75  # of the gain of full energies: with that the shape of the residual hardly depends on theta
CONTINUED = 0.4  # of the training schedule, its end, for energies that were theta-free


def best_energies(
    key: PRNGKeyArray, train: Callable[..., TiltedFit], *, start: WarmStart | None = None
) -> tuple[TiltedFit, str]:
    """Train energies of several kinds, and return the simplest that is as good, and its name.

    Args:
        key: randomness of the trainings.
        train: trains energies of one kind, as `unle.train.fit_tilted` does with sees_theta, start and share.
        start: what full energies begin with, if not with nothing; they are trained in any case then.
    """
    key_free, key_full, key_continued = split(key, 3)
    free = train(key_free, sees_theta=False)
    kinds = {"theta-free": free}
    if free.validation is not None and clearly_better(free.validation):
        begun = WarmStart(free.energies, places(free.particles))
        kinds["continued"] = train(key_continued, sees_theta=True, start=begun, share=CONTINUED)
        if start is None and kinds["continued"].gain <= free.gain:
            return free, "theta-free"
    full = train(key_full, sees_theta=True, start=start)
    if free.gain < MOSTLY * full.gain:
        kinds.pop("continued", None)
    kinds["full"] = full
    best = reduce(simplest_as_good, kinds.values())
    return best, next(name for name, fit in kinds.items() if fit is best)
