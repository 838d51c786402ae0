"""The random generators of simulations, each the same in any process, in any order, in whatever pieces.

Simulation `id` of a round has the generator that NumPy makes from

    SeedSequence(seed, spawn_key=(round, id)).

NumPy takes some 30 microseconds for one, which matters where a simulation takes a millisecond. Nearly all of it is the
hashing of a few 32-bit words. Here the words of many simulations are hashed at once, by the same published algorithm:
the generators are the same, bit for bit (a test compares them).
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from jaxtyping import Int, UInt64
from numpy.random.bit_generator import ISpawnableSeedSequence

MOST_ONE_BY_ONE = 8  # up to so many, NumPy's own way is as fast
_POOL = 4  # words of 32 bits that the seed sequence holds
_PCG64_WORDS = 4  # words of 64 bits that a generator asks for
_WORD = 1 << 32
_SHIFT = np.uint32(16)
_ENTER = 0x43B0D7E5, 0x931E8875  # constants with which words enter the pool
_LEAVE = 0x8B51F9DD, 0x58F38DED  # and leave it
_LEFT, _RIGHT = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)


def generator(seed: int, round: int, id: int) -> np.random.Generator:
    """Return the random generator of simulation `id` of a round."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(round, id))))


def generators(seed: int, round: int, ids: Int[np.ndarray, " n"]) -> Iterator[np.random.Generator]:
    """Yield the random generators of several simulations, each as `generator` makes it."""
    if len(ids) <= MOST_ONE_BY_ONE or ids.max() >= _WORD:  # an id of two words is hashed in another way
        yield from (generator(seed, round, i) for i in ids.tolist())
        return
    for state, i in zip(_states(seed, round, ids), ids.tolist(), strict=True):
        hashed: Any = _Hashed(state, seed, round, i)  # PCG64 takes it, though its stubs know one class only
        yield np.random.Generator(np.random.PCG64(hashed))


def _states(seed: int, round: int, ids: np.ndarray) -> UInt64[np.ndarray, "n 4"]:
    """Return `SeedSequence(seed, spawn_key=(round, id)).generate_state(4, np.uint64)` for every id."""
    seed_words = _words(seed)
    fixed = [*seed_words, *[0] * (_POOL - len(seed_words)), *_words(round)]
    entropy = [np.full(len(ids), word, dtype=np.uint32) for word in fixed] + [ids.astype(np.uint32)]
    enter = _scrambler(*_ENTER)
    pool = [enter(word) for word in entropy[:_POOL]]
    for source in range(_POOL):
        for target in range(_POOL):
            if source != target:
                pool[target] = _mix(pool[target], enter(pool[source]))
    for word in entropy[_POOL:]:
        pool = [_mix(old, enter(word)) for old in pool]
    leave = _scrambler(*_LEAVE)
    out = [leave(pool[k % _POOL]).astype(np.uint64) for k in range(2 * _POOL)]
    return np.stack([low | high << np.uint64(32) for low, high in zip(out[::2], out[1::2], strict=True)], axis=1)


def _scrambler(constant: int, factor: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that scrambles a word, with another constant every time it is called."""

    def scramble(word: np.ndarray) -> np.ndarray:
        nonlocal constant
        before, constant = constant, constant * factor % _WORD
        word = (word ^ np.uint32(before)) * np.uint32(constant)
        return word ^ word >> _SHIFT

    return scramble


def _mix(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    mixed = _LEFT * old - _RIGHT * new
    return mixed ^ mixed >> _SHIFT


def _words(number: int) -> list[int]:
    """Return the 32-bit words of a number, the lowest first."""
    words = [number % _WORD]
    while number := number // _WORD:
        words.append(number % _WORD)
    return words


class _Hashed(ISpawnableSeedSequence):
    """A seed sequence whose first state is known; for everything else NumPy's own one is made."""

    def __init__(self, state: np.ndarray, seed: int, round: int, id: int):
        self._state, self._arguments = state, (seed, round, id)
        self._sequence: np.random.SeedSequence | None = None  # NumPy's own; kept, because spawn() continues its count

    def generate_state(self, n_words, dtype=np.uint32):
        """Return the words that seed a generator."""
        if n_words == _PCG64_WORDS and dtype is np.uint64:
            return self._state
        return self._real().generate_state(n_words, dtype)

    def spawn(self, n_children):
        """Return independent seed sequences."""
        return self._real().spawn(n_children)

    def _real(self) -> np.random.SeedSequence:
        if self._sequence is None:
            seed, round, id = self._arguments
            self._sequence = np.random.SeedSequence(seed, spawn_key=(round, id))
        return self._sequence
