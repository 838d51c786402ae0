r"""Fifteen summary statistics of the pyloric rhythm, of which eight are free numbers.

With T the mean time between starts of AB/PD bursts, and means over cycles in which every neuron bursts exactly once:

    free         T; mean burst durations of AB/PD, LP, PY; delays start-start and end-start, AB/PD to LP and LP to PY
    the others   duty cycles (duration / T), start phases of LP and PY and phase gaps (delay / T)

The others are quotients of the free ones: data of length fifteen lie on a surface of dimension eight and have no
density. Model the eight, and compute the fifteen from them with `fifteen`.

A statistic that cannot be computed is NaN. Which ones are tells why, see `explain`.
"""

from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Float

from unle_bench.pyloric.bursts import PLATEAU_ABSENT, PLATEAU_SHORTEST, Bursts, milliseconds
from unle_bench.pyloric.specification import NEURONS

FREE_NAMES = (
    "cycle_period",
    "burst_duration PM",
    "burst_duration LP",
    "burst_duration PY",
    "starts_to_starts PM-LP",
    "starts_to_starts LP-PY",
    "ends_to_starts PM-LP",
    "ends_to_starts LP-PY",
)
PAPER_NAMES = (
    *FREE_NAMES[:4],
    "duty_cycle PM",
    "duty_cycle LP",
    "duty_cycle PY",
    "start_phase LP",
    "start_phase PY",
    *FREE_NAMES[4:],
    "phase_gap PM-LP",
    "phase_gap LP-PY",
)
PLATEAU_NAMES = ("plateau_duration PM", "plateau_duration LP", "plateau_duration PY")
FREE = (0, 1, 2, 3, 9, 10, 11, 12)  # positions of the free ones among the fifteen
TRIPHASIC_SHARE = 0.9  # of the cycles, at least

# The experimental observation: nerves of Cancer borealis, decentralised preparation 845_082, recorded by Haddad and
# Marder. The fifteen, then plateau durations: the animal has none, which is written as 2.5 ms.
OBSERVED = np.array(
    [
        1170.8585937500002,
        206.03643410852757,
        214.3070312499983,
        412.84218749999985,
        0.17597038208400437,
        0.18303408489629858,
        0.3525978198424098,
        0.41160032801783486,
        0.6305448926035179,
        481.9257812500009,
        256.35312499999895,
        275.16484375000044,
        42.04609375000071,
        0.23501116635161598,
        0.035910479689384524,
        2.5,
        2.5,
        2.5,
    ]
)


def free_statistics(bursts: Bursts, xp: ModuleType = np) -> Any:
    """Return the eight free statistics of one simulation, in ms; NaN where undefined.

    Args:
        bursts: of one simulation.
        xp: `numpy` or `jax.numpy`, whichever the bursts are arrays of.
    """
    starts, ends, number = bursts.starts, bursts.ends, bursts.number
    position = xp.arange(starts.shape[1])
    there = position[None, :] < number[:, None]
    lengths = xp.where(there, ends - starts, 0).sum(axis=1)
    durations = _mean(xp, lengths, number)

    cycles = number[0] - 1
    first, following = starts[0][:-1], starts[0][1:]
    complete = position[:-1] < cycles
    last = xp.where(position == cycles, starts[0], 0).sum()
    period = _mean(xp, last - starts[0, 0], cycles)

    # inside[j, k, b]: burst b of neuron j starts in cycle k
    inside = (starts[:, None, :] >= first[:, None]) & (starts[:, None, :] < following[:, None]) & there[:, None, :]
    triphasic = complete & (inside.sum(axis=2) == 1).all(axis=0)
    n_triphasic = triphasic.sum()
    begun = xp.where(inside, starts[:, None, :], 0).sum(axis=2)  # (neuron, cycle)
    ended = xp.where(inside, ends[:, None, :], 0).sum(axis=2)
    delays = xp.stack([begun[1] - begun[0], begun[2] - begun[1], begun[1] - ended[0], begun[2] - ended[1]])
    delays = _mean(xp, xp.where(triphasic, delays, 0).sum(axis=1), n_triphasic)
    # share >= 0.9 in whole numbers: rounding must not decide
    regular = (cycles > 0) & (10 * n_triphasic >= round(10 * TRIPHASIC_SHARE) * cycles)
    delays = xp.where(regular, delays, xp.nan)
    return milliseconds(xp.concatenate([period[None], durations, delays]))


def _mean(xp: ModuleType, total: Any, count: Any) -> Any:
    return xp.where(count > 0, total / xp.maximum(count, 1), xp.nan)


def fifteen(free: Any, xp: ModuleType = np) -> Any:
    """Return the fifteen statistics from the eight free ones, along the last axis.

    Example:
        >>> from unle_bench.pyloric.statistics import FREE, OBSERVED, fifteen
        >>> bool(np.allclose(fifteen(OBSERVED[list(FREE)]), OBSERVED[:15], rtol=1e-12))
        True
    """
    period, durations, starts, gaps = free[..., :1], free[..., 1:4], free[..., 4:6], free[..., 6:8]
    phases = xp.concatenate([starts[..., :1], starts[..., :1] + starts[..., 1:]], axis=-1)
    return xp.concatenate(
        [period, durations, durations / period, phases / period, starts, gaps, gaps / period], axis=-1
    )


def plateau_statistics(bursts: Bursts, xp: ModuleType = np) -> Any:
    """Return the mean plateau durations of the three neurons, in ms; NaN for a neuron without bursts."""
    there = xp.arange(bursts.starts.shape[1])[None, :] < bursts.number[:, None]
    means = _mean(xp, xp.where(there, bursts.plateaus, 0).sum(axis=1), bursts.number)
    return milliseconds(xp.where(means < PLATEAU_SHORTEST, PLATEAU_ABSENT, means))


def explain(x: Float[np.ndarray, " dim_x"]) -> str:
    """Return why a row of statistics (eight, fifteen or eighteen) is not valid; the empty string if it is.

    Example:
        >>> explain(np.array([1000.0, 200.0, 200.0, np.nan, *[np.nan] * 4]))
        'no bursts: PY'
    """
    x = np.asarray(x)
    if np.isfinite(x).all():
        return ""
    silent = [name for name, duration in zip(NEURONS, x[1:4], strict=True) if not np.isfinite(duration)]
    if silent:
        return f"no bursts: {', '.join(silent)}"
    if not np.isfinite(x[0]):
        return "no period: AB/PD bursts only once"
    return "not triphasic"
