r"""Energies of three kinds, of which the simplest that is as good is kept.

1. Theta-free: one function of the residuals for all theta.  All simulations teach it, whatever their theta.  It has no
   weight on t; next to both views of the data (`unle.models.TwoViews`) it sees theta as far as the base moves with it.
2. Theta-free to begin with: training goes on with small steps and may bend the shape with theta, where data ask for it.
   What all theta have in common stays in common, for instance the weights of a likelihood's modes.
3. Full: trained from nothing, whatever theta does to the shape.

Full energies come first: theta-free ones that stop improving far below their gain need not be trained to the end.  The
second is tried where the first has most of what the third gains.  Elsewhere its start leads it astray.
"""

from collections.abc import Callable

from jaxtyping import PRNGKeyArray

from unle.space.host_device import split
from unle.train import TiltedFit, WarmStart, is_better, pair_particles, simplest_as_good

SIMPLE_SHARE = 0.75  # of the gain of full energies, from which on the residuals say nearly all
KEEP_ERRORS = 2.0  # standard errors of the gain; with one, useless energies would stay one time in six
CONTINUED_SCHEDULE = 0.4  # share of the training schedule, its end, for energies that were theta-free


def best_energies(
    key: PRNGKeyArray, train: Callable[..., TiltedFit], *, start: WarmStart | None = None
) -> tuple[TiltedFit, str]:
    """Train energies of several kinds, and return the simplest that is as good, and its name.

    Args:
        key: randomness of the trainings.
        train: trains energies of one kind, as `unle.train.fit_tilted` does with sees_theta, start, share and aim.
        start: what full energies begin with, if not with nothing.
    """
    key_free, key_full, key_continued = split(key, 3)
    full = train(key_full, sees_theta=True, start=start)
    free = train(key_free, sees_theta=False, aim=full.gain if _clearly_gains(full) else 0.0)
    kinds = {"theta-free": free}
    if _clearly_gains(free) and free.gain >= SIMPLE_SHARE * full.gain:
        begun = WarmStart(free.energies, pair_particles(free.particles))
        kinds["continued"] = train(key_continued, sees_theta=True, start=begun, share=CONTINUED_SCHEDULE)
    kinds["full"] = full
    better = {name: fit for name, fit in kinds.items() if fit.validation is not None}  # than the bases
    if not better:
        return full, "full"
    name = list(better)[simplest_as_good([fit.validation.rows for fit in better.values()])]
    return kinds[name], name


def _clearly_gains(fit: TiltedFit) -> bool:
    """Return whether energies gain more than two standard errors over the bases; False for NaN."""
    return fit.validation is not None and is_better(fit.validation.rows, errors=KEEP_ERRORS)
