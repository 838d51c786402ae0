"""From spikes to bursts: the rules, as numbers of samples, so that no rounding decides.

A spike is a local maximum of the smoothed voltage above -10 mV: sample i if v[i+1] > -10, v[i] <= v[i+1] >= v[i+2]. A
gap of 150 ms or more between spikes separates bursts, and a burst counts if it is longer than 40 ms. The first second
of a simulation is left out, and sample 0 is the first after it.
"""

from typing import Any, NamedTuple

from unle_bench.pyloric.specification import SAMPLES, STEP

SKIPPED = 40_000  # samples of the first second
RECORDED = SAMPLES - SKIPPED
SPIKE_ABOVE = -10.0  # mV
GAP = 6_000  # samples, 150 ms: as large or larger separates
SHORTEST = 1_600  # samples, 40 ms: bursts are longer
# Bursts and gaps have a least length, hence there is room for all bursts that a simulation can have.
MOST_BURSTS = RECORDED // (GAP + SHORTEST + 1) + 1

PLATEAU_ABOVE = -30.0  # mV
PLATEAU_EVERY = 10  # samples
PLATEAU_SHORTEST, PLATEAU_ABSENT = 200, 100  # samples: a mean below the first is spikes alone, written as the second


class Bursts(NamedTuple):
    """The bursts of one simulation, by neuron, in samples.

    Attributes:
        starts: sample of the first spike of each burst, shape (3, MOST_BURSTS); meaningless beyond the first `number`.
        ends: sample of the last spike, likewise.
        number: how many bursts each neuron has, shape (3,).
        plateaus: longest stretch above -30 mV, in samples, from each start to the next one, seen every tenth sample;
            None where it was not asked for.
    """

    starts: Any
    ends: Any
    number: Any
    plateaus: Any = None


def milliseconds(samples: Any) -> Any:
    """Return a time in ms."""
    return samples * STEP
