"""The random generators of many simulations, made together.

Simulation `id` of a round has the generator numpy makes from

    SeedSequence(seed, spawn_key=(round, id)).

Making one takes numpy 30 to 50 microseconds, which is felt where a simulation takes a millisecond. Nearly all of it is
the hashing of a few 32-bit words. Here the words of many simulations are hashed at once, column by column, by the same
published algorithm, and numpy gets the result: the generators are the same, bit for bit (a test compares them).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import UInt64
from numpy.random.bit_generator import ISpawnableSeedSequence

_POOL = 4  # words of 32 bits that the seed sequence holds
_SHIFT = np.uint32(16)
_INITIAL, _FACTOR = 0x43B0D7E5, 0x931E8875  # of the constants with which words enter the pool
_INITIAL_OUT, _FACTOR_OUT = 0x8B51F9DD, 0x58F38DED  # and leave it
_LEFT, _RIGHT = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)
_WORDS = 32  # bits
FEW = 8  # generators are made as fast one by one


def generator(seed: int, round: int, id: int) -> np.random.Generator:
    """Return the random generator of one simulation.

    Args:
        seed: the seed of the run.
        round: the round.
        id: the number of the simulation within the round.
    """
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(round, id))))


def generators(seed: int, round: int, ids: Sequence[int] | np.ndarray) -> Iterator[np.random.Generator]:
    """Yield the random generators of several simulations, each as `generator` would make it."""
    if len(ids) <= FEW:
        yield from (generator(seed, round, int(i)) for i in ids)
        return
    states = initial_states(seed, round, np.asarray(ids))
    for state, i in zip(states, ids, strict=True):
        hashed: Any = _Hashed(state, seed, round, int(i))  # PCG64 takes it, though its stubs know one class only
        yield np.random.Generator(np.random.PCG64(hashed))


def initial_states(seed: int, round: int, ids: np.ndarray) -> UInt64[np.ndarray, "n 4"]:
    """Return what `SeedSequence(seed, spawn_key=(round, id)).generate_state(4, np.uint64)` is for every id."""
    ids = np.asarray(ids, dtype=np.uint64)
    states = np.empty((len(ids), _POOL), dtype=np.uint64)
    large = ids >> np.uint64(_WORDS) != 0  # such an id is two words, and the hash of more words another one
    for there, words in ((~large, 1), (large, 2)):
        if there.any():
            states[there] = _hash(_split(seed), _split(round), ids[there], words)
    return states


def _hash(seed: list[int], round: list[int], ids: np.ndarray, words: int) -> np.ndarray:
    """Hash the words of the seed, padded to the pool, those of the round, and those of each id."""
    fixed = [*seed, *[0] * (_POOL - len(seed)), *round]
    entropy = [np.full(len(ids), word, dtype=np.uint32) for word in fixed]
    entropy += [(ids >> np.uint64(_WORDS * k)).astype(np.uint32) for k in range(words)]
    scramble = _scrambler(_INITIAL, _FACTOR)
    pool = [scramble(word) for word in entropy[:_POOL]]
    for source in range(_POOL):
        for target in range(_POOL):
            if source != target:
                pool[target] = _mix(pool[target], scramble(pool[source]))
    for word in entropy[_POOL:]:
        pool = [_mix(old, scramble(word)) for old in pool]
    leave = _scrambler(_INITIAL_OUT, _FACTOR_OUT)
    out = [leave(pool[k % _POOL]).astype(np.uint64) for k in range(2 * _POOL)]
    return np.stack([low | high << np.uint64(_WORDS) for low, high in zip(out[::2], out[1::2], strict=True)], axis=1)


def _scrambler(constant: int, factor: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that scrambles a word, with other constants every time it is called."""

    def scramble(word: np.ndarray) -> np.ndarray:
        nonlocal constant
        before, constant = constant, constant * factor % (1 << _WORDS)
        word = (word ^ np.uint32(before)) * np.uint32(constant)
        return word ^ word >> _SHIFT

    return scramble


def _mix(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    mixed = _LEFT * old - _RIGHT * new
    return mixed ^ mixed >> _SHIFT


def _split(number: int) -> list[int]:
    """Return the 32-bit words of a number, the lowest first."""
    words = [number % (1 << _WORDS)]
    while number := number >> _WORDS:
        words.append(number % (1 << _WORDS))
    return words


class _Hashed(ISpawnableSeedSequence):
    """A seed sequence whose state is known already; what else is asked of it, numpy's own one answers."""

    def __init__(self, state: np.ndarray, seed: int, round: int, id: int):
        self._state, self._of = state, (seed, round, id)
        self._whole: np.random.SeedSequence | None = None

    def generate_state(self, n_words, dtype=np.uint32):
        """Return the words that seed a generator."""
        if n_words == _POOL and dtype is np.uint64:
            return self._state
        return self._real().generate_state(n_words, dtype)

    def spawn(self, n_children):
        """Return independent seed sequences."""
        return self._real().spawn(n_children)

    def _real(self) -> np.random.SeedSequence:
        if self._whole is None:  # kept: it counts its children
            seed, round, id = self._of
            self._whole = np.random.SeedSequence(seed, spawn_key=(round, id))
        return self._whole
