"""From voltages to bursts: smoothing, and the rules as numbers of samples, so that no rounding decides.

Voltages are smoothed by Savitzky and Golay's filter: a cubic is fitted to 21 samples (0.5 ms) around each one and
evaluated there. In the interior that is a fixed set of 21 weights; within ten samples of an end, the cubic of the first
or last 21 samples is used.

A spike is a local maximum of the smoothed voltage above -10 mV: sample i if v[i+1] > -10, v[i] <= v[i+1] >= v[i+2]. A
gap of 150 ms or more between spikes separates bursts, and a burst counts if it is longer than 40 ms. The first second
of a simulation is left out, and sample 0 is the first after it.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

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


HALF = 10  # samples on either side, in the filter
WIDTH = 2 * HALF + 1
DEGREE = 3


def edge_weights() -> Float[np.ndarray, "width width"]:
    """Return the weights that turn 21 samples into the fitted cubic at each of the 21; the middle row is the filter."""
    powers = np.vander(np.arange(-HALF, HALF + 1) / HALF, DEGREE + 1)
    return powers @ np.linalg.pinv(powers)


def filter_weights() -> Float[np.ndarray, " width"]:
    """Return the 21 weights of the interior."""
    return edge_weights()[HALF]


def block_matrix(length: int) -> Float[np.ndarray, "inside length"]:
    """Return the matrix that smooths a stretch of samples, without its first and last ten."""
    matrix = np.zeros((length - 2 * HALF, length))
    for row in range(len(matrix)):
        matrix[row, row : row + WIDTH] = filter_weights()
    return matrix
