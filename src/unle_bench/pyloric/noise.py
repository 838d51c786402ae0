"""Noise that both engines can make: one Gaussian number per neuron and step, from two words of a key.

Threefry-2x32 with twenty rounds, a counter-based generator, turns (key, step) into 64 random bits; three times 21 of
them become three normals through the inverse of the Gaussian distribution function. No state is carried from step to
step, so an accelerator makes them inside its loop, and the compiled engine can repeat any of its simulations.

Reference: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011.
"""

from typing import Any

import numpy as np
from jaxtyping import Float

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
BITS = 21  # of each of three uniforms


def threefry(key: tuple[Any, Any], counter: tuple[Any, Any], word: Any) -> tuple[Any, Any]:
    """Return 64 random bits as two words of 32.

    Args:
        key: two words, numbers or arrays of them.
        counter: two words.
        word: the type of a word, `numpy.uint32` or `jax.numpy.uint32`.
    """
    keys = (*key, key[0] ^ key[1] ^ word(PARITY))
    a, b = counter[0] + keys[0], counter[1] + keys[1]
    for group in range(5):
        for rotation in ROTATIONS[group % 2]:
            a = a + b
            b = ((b << word(rotation)) | (b >> word(32 - rotation))) ^ a
        a = a + keys[(group + 1) % 3]
        b = b + keys[(group + 2) % 3] + word(group + 1)
    return a, b


def three_integers(key: tuple[Any, Any], step: Any, word: Any) -> tuple[Any, Any, Any]:
    """Return three random integers below 2^21 for one step of one simulation."""
    a, b = threefry(key, (step, word(0)), word)
    low = word(2**11 - 1)
    return a >> word(32 - BITS), b >> word(32 - BITS), ((a & low) << word(10)) | (b & word(2**10 - 1))


def noise_of(key: tuple[int, int], steps: int) -> Float[np.ndarray, "steps 3"]:
    """Return standard normal noise of a whole simulation, as the JAX engine makes it from the same key.

    Args:
        key: two words of 32 bits: `jax.random.key_data` of a key.
        steps: how many; row i belongs to the step from sample i to sample i + 1.
    """
    from scipy.special import ndtri

    with np.errstate(over="ignore"):  # words wrap around
        words = tuple(np.full(1, word, np.uint32) for word in key)
        integers = three_integers((words[0], words[1]), np.arange(steps, dtype=np.uint32), np.uint32)
    return ndtri((np.stack(integers, axis=1) + 0.5) / 2**BITS)
