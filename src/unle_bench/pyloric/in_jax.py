"""Simulate the pyloric network in JAX: for accelerators, many thousand simulations at once.

Written for one simulation, to be vectorised with `jax.vmap`. The voltages of 80 samples at a time are smoothed by one
matrix product, and only bursts are remembered: memory does not grow with time. A block is much shorter than the gap
between bursts, so only its first and its last spike matter.

Example:
    >>> import jax.random as jr, jax.numpy as jnp
    >>> from unle_bench.pyloric.in_jax import run
    >>> from unle_bench.pyloric.specification import LOWER, UPPER
    >>> trace = run(jnp.asarray((LOWER + UPPER) / 2), jr.key(0), samples=80, with_trace=True).trace
    >>> trace.shape
    (3, 80)
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key

from unle_bench.pyloric import specification as spec
from unle_bench.pyloric.bursts import (
    GAP,
    HALF,
    MOST_BURSTS,
    SHORTEST,
    SKIPPED,
    SPIKE_ABOVE,
    WIDTH,
    Bursts,
    block_matrix,
    edge_weights,
    filter_weights,
)
from unle_bench.pyloric.noise import BITS, three_integers

BLOCK = 80  # samples; divides both the first second and the whole
TAIL = 2 * HALF + 2  # samples of the last block that the filter needs again
UNROLL = 8  # steps per turn of the compiled loop on an accelerator
NEVER = -(10**9)

Noise = Callable[[Int[Array, ""]], Float[Array, "3"]]


class State(NamedTuple):
    """Of the network, by neuron; see the specification."""

    v: Float[Array, "3"]
    calcium: Float[Array, "3"]
    gates: tuple[Float[Array, "3"], ...]
    glutamate: Float[Array, "3"]
    acetylcholine: Float[Array, ""]


class Detector(NamedTuple):
    """What is remembered of the spikes so far, by neuron, in samples since the end of the first second."""

    tail: Float[Array, "tail 3"]
    last: Int[Array, "3"]
    start: Int[Array, "3"]
    number: Int[Array, "3"]
    starts: Int[Array, "3 bursts"]
    ends: Int[Array, "3 bursts"]


class Simulated(NamedTuple):
    """One simulation: its bursts and, if asked for, the voltages of all samples."""

    bursts: Bursts
    trace: Float[Array, "3 samples"] | None


def run(
    theta: Float[Array, "31"],
    noise: Key[Array, ""] | Float[Array, "steps 3"],
    *,
    samples: int = spec.SAMPLES,
    with_trace: bool = False,
    unroll: int | None = None,
) -> Simulated:
    """Simulate once, in the precision of theta.

    Args:
        theta: the 31 parameters.
        noise: a key, or the standard normal noise of each step.
        samples: of V, the initial state included; a multiple of 80.
        with_trace: keep the voltages; their memory grows with time.
        unroll: steps per turn of the compiled loop; by default 8 on an accelerator, where it doubles the speed, and 1
            on a CPU, where it only takes long to compile.
    """
    unroll = unroll or (1 if jax.default_backend() == "cpu" else UNROLL)
    parameters = conductances(theta)
    draw = noise_from(noise, theta.dtype)
    first, middle = (jnp.asarray(matrix, theta.dtype) for matrix in _matrices())

    def one_step(network: tuple[State, State], index: Int[Array, ""]):
        return step(parameters, *network, draw(index)), network[0].v

    def one_block(carry: tuple[tuple[State, State], Detector], block: Int[Array, ""]):
        network, detector = carry
        begin = block * BLOCK
        network, voltages = jax.lax.scan(one_step, network, begin + jnp.arange(BLOCK), unroll=min(unroll, BLOCK))
        window = jnp.concatenate([detector.tail, voltages])
        matrix = jnp.where(begin == SKIPPED, first, middle)
        detector = _detect(detector, matrix, window, begin - SKIPPED - HALF - 2)
        return (network, detector._replace(tail=window[-TAIL:])), voltages if with_trace else None

    start = initial(theta.dtype)
    carry = (start, jax.tree.map(jnp.zeros_like, start)), _detector(theta.dtype)
    (_, detector), blocks = jax.lax.scan(one_block, carry, jnp.arange(samples // BLOCK))
    detector = _detect(detector, jnp.asarray(_last_matrix(), theta.dtype), detector.tail, samples - SKIPPED - HALF - 2)
    detector = _close(detector, jnp.ones(3, bool))
    trace = None if blocks is None else blocks.reshape(samples, 3).T
    return Simulated(Bursts(detector.starts, detector.ends, detector.number), trace)


def conductances(theta: Float[Array, "31"]) -> tuple[tuple[Array, ...], tuple[Array, ...], Array]:
    """Return conductances in mS: eight channels, glutamate from each neuron, acetylcholine; each onto three neurons."""
    channels = tuple(spec.AREA * theta[:24].reshape(3, 8).T)
    synapses = jnp.exp(theta[24:])
    glutamate, acetylcholine = jnp.zeros((3, 3), theta.dtype), jnp.zeros(3, theta.dtype)
    for position, source, target in spec.GLUTAMATE:
        glutamate = glutamate.at[source, target].set(synapses[position])
    for position, target in spec.ACETYLCHOLINE:
        acetylcholine = acetylcholine.at[target].set(synapses[position])
    return channels, tuple(glutamate), acetylcholine


def initial(dtype: Any) -> State:
    """Return the state at time zero."""
    zero = jnp.zeros(3, dtype)
    return State(zero + spec.V_START, zero + spec.CALCIUM_START, (zero,) * spec.N_GATES, zero, zero[0])


def noise_from(noise: Any, dtype: Any) -> Noise:
    """Return the function that gives the noise of each step."""
    if not jnp.issubdtype(noise.dtype, jax.dtypes.prng_key):
        return lambda index: noise[index].astype(dtype)
    words = jr.key_data(noise)

    def draw(index: Int[Array, ""]) -> Float[Array, "3"]:
        integers = jnp.stack(three_integers((words[0], words[1]), index.astype(jnp.uint32), jnp.uint32))
        # u in (-1, 1), all its bits kept in single precision
        u = (2 * integers.astype(jnp.int32) + (1 - 2**BITS)).astype(dtype) * 2.0**-BITS
        return math.sqrt(2.0) * jax.lax.erf_inv(u)

    return draw


def step(parameters: Any, state: State, lost: State, noise: Float[Array, "3"]) -> tuple[State, State]:
    """Advance the network by one step.

    A slow gate moves by less than a millionth in a step, and single precision rounds most of that off. What rounding
    added is remembered and taken off the next increment (Kahan 1965): some networks are chaotic, and errors of the size
    of rounding give them another period after ten seconds.

    Args:
        parameters: of `conductances`.
        state: of the network.
        lost: what was rounded up in the last step.
        noise: of the step.

    Returns:
        The new state, and what was rounded up in this step.
    """
    increments = jax.tree.map(jnp.subtract, change(parameters, state, noise), lost)
    new = jax.tree.map(jnp.add, state, increments)
    return new, jax.tree.map(lambda after, before, wanted: (after - before) - wanted, new, state, increments)


def change(parameters: Any, state: State, noise: Float[Array, "3"]) -> State:
    """Return what one step adds to the state."""
    channels, glutamate, acetylcholine = parameters
    v, calcium, gates, s, slow = state
    m, h = gates[:7], gates[7:]
    inhibition = s[0] * glutamate[0] + s[1] * glutamate[1] + s[2] * glutamate[2]
    cholinergic = slow * acetylcholine
    c_na = channels[0] * m[0] ** 3 * h[0]
    c_ca = channels[1] * m[1] ** 3 * h[1] + channels[2] * m[2] ** 3 * h[2]
    c_k = channels[3] * m[3] ** 3 * h[3] + channels[4] * m[4] ** 4 + channels[5] * m[5] ** 4
    c_h, c_leak = channels[6] * m[6], channels[7]
    e_ca = spec.NERNST * jnp.log(spec.CALCIUM_OUTSIDE / calcium)
    steady_calcium = spec.CALCIUM_REST - spec.CALCIUM_PER_CURRENT * c_ca * (v - e_ca)

    total = inhibition + cholinergic + c_na + c_ca + c_k + c_h + c_leak
    driving = (
        spec.E_GLUTAMATE * inhibition
        + spec.E_ACETYLCHOLINE * cholinergic
        + spec.E_NA * c_na
        + e_ca * c_ca
        + spec.E_K * c_k
        + spec.E_H * c_h
        + spec.E_LEAK * c_leak
        + spec.NOISE * noise
    )
    conducting = total > 0
    target = driving / jnp.where(conducting, total, 1) - v
    share = -jnp.expm1(-spec.STEP / spec.CAPACITANCE * total)
    dv = jnp.where(conducting, target * share, spec.STEP / spec.CAPACITANCE * driving)
    d_calcium = -math.expm1(-spec.STEP / spec.TAU_CALCIUM) * (steady_calcium - calcium)

    steady = spec.steady_states(v, jnp.exp)
    steady[spec.KCA] = steady[spec.KCA] * calcium / (calcium + spec.CALCIUM_HALF_KCA)
    shares = [_share(spec.STEP * rate) for rate in spec.rates(v, jnp.exp)]
    d_gates = tuple((x_inf - x) * d for x, x_inf, d in zip(gates, steady, shares, strict=True))
    s_inf, speed = spec.synapse(v, jnp.exp)
    ds = (s_inf - s) * jnp.minimum(1, spec.STEP / spec.TAU_GLUTAMATE * speed)
    d_slow = (s_inf[0] - slow) * jnp.minimum(1, spec.STEP / spec.TAU_ACETYLCHOLINE * speed[0])
    return State(dv, d_calcium, d_gates, ds, d_slow)


def _share(x: Float[Array, "3"]) -> Float[Array, "3"]:
    """Return 1 - exp(-x)."""
    if x.dtype == jnp.float64:
        return -jnp.expm1(-x)
    # A series costs less than an exponential, and its error is below rounding up to x = 0.25, which no gate exceeds at
    # any voltage that occurs; min keeps it a share at those that do not.
    x = jnp.minimum(x, 1)
    return x * (1 - x / 2 * (1 - x / 3 * (1 - x / 4 * (1 - x / 5 * (1 - x / 6)))))


def _matrices() -> tuple[np.ndarray, np.ndarray]:
    """Return the filter of a block and of the first one, whose first ten samples come from the cubic at the edge."""
    middle = block_matrix(TAIL + BLOCK)
    first = middle.copy()
    first[HALF + 2 : 2 * HALF + 2] = 0
    first[HALF + 2 : 2 * HALF + 2, TAIL : TAIL + WIDTH] = edge_weights()[:HALF]
    return first, middle


def _last_matrix() -> np.ndarray:
    """Return the filter of the last twelve samples, given the last 22."""
    matrix = np.zeros((HALF + 2, TAIL))
    matrix[0, :-1] = filter_weights()
    matrix[1:, 1:] = edge_weights()[HALF:]
    return matrix


def _detector(dtype: Any) -> Detector:
    nothing, none = jnp.full(3, NEVER, jnp.int32), jnp.zeros(3, jnp.int32)
    table = jnp.zeros((3, MOST_BURSTS), jnp.int32)
    return Detector(jnp.full((TAIL, 3), spec.V_START, dtype), nothing, nothing, none, table, table)


def _detect(detector: Detector, matrix: Array, window: Array, begin: Any) -> Detector:
    """Find the spikes of a stretch of voltages.

    Args:
        detector: what is known so far.
        matrix: the filter; its first row gives sample `begin`.
        window: voltages.
        begin: the first sample at which a spike may be.
    """
    smooth = jnp.matmul(matrix, window, precision=jax.lax.Precision.HIGHEST)
    before, here, after = smooth[:-2], smooth[1:-1], smooth[2:]
    sample = (begin + jnp.arange(len(before))).astype(jnp.int32)[:, None]
    spike = (here > SPIKE_ABOVE) & (before <= here) & (after <= here) & (sample >= 0)
    first = jnp.where(spike, sample, 2**30).min(axis=0)
    last = jnp.where(spike, sample, NEVER).max(axis=0)
    spiking = last >= 0
    begins = spiking & (first - jnp.maximum(detector.last, NEVER // 2) >= GAP)
    detector = _close(detector, begins)
    return detector._replace(
        start=jnp.where(begins, first, detector.start), last=jnp.where(spiking, last, detector.last)
    )


def _close(detector: Detector, ending: Array) -> Detector:
    """Write down the running bursts of these neurons, if they are long enough."""
    kept = ending & (detector.last - detector.start > SHORTEST)
    place = jnp.arange(3), jnp.where(kept, detector.number, MOST_BURSTS)  # out of range: not written
    return detector._replace(
        starts=detector.starts.at[place].set(detector.start, mode="drop", unique_indices=True),
        ends=detector.ends.at[place].set(detector.last, mode="drop", unique_indices=True),
        number=detector.number + kept,
    )
