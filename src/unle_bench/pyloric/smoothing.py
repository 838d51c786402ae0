"""Smoothing of a voltage trace before spikes are counted: Savitzky-Golay, as matrices.

A cubic is fitted to 21 samples (0.5 ms) around each one and evaluated there. In the interior that is a fixed set of 21
weights; within ten samples of an end, the cubic of the first or last 21 samples is used.
"""

import numpy as np
from jaxtyping import Float

HALF = 10  # samples on either side
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
