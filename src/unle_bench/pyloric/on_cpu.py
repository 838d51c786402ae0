"""Simulate the pyloric network on a CPU core, without JAX: for worker processes.

Example:
    >>> import numpy as np
    >>> from unle_bench.pyloric.on_cpu import run
    >>> from unle_bench.pyloric.specification import LOWER, UPPER
    >>> result = run((LOWER + UPPER) / 2, np.random.default_rng(0), samples=1_000, with_trace=True)
    >>> result.trace.shape
    (3, 1000)
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from unle.errors import InputError
from unle_bench.pyloric.bursts import HALF, MOST_BURSTS, SKIPPED, Bursts, edge_weights
from unle_bench.pyloric.lookup import Constants, Rules, table
from unle_bench.pyloric.specification import (
    ACETYLCHOLINE,
    AREA,
    CALCIUM_START,
    DIM,
    GLUTAMATE,
    N_GATES,
    SAMPLES,
    V_START,
)

PIECE = 8_000  # samples that are integrated before spikes are looked for
TAIL = 2 * HALF + 2  # samples of the last piece that the filter needs again
CONSTANTS, RULES = Constants(), Rules()
MOST_SPIKES = 20_000  # that are written down, of each neuron


class Simulated(NamedTuple):
    """One simulation.

    Attributes:
        bursts: of the three neurons.
        spikes: samples of the spikes of each neuron, counted from the end of the first second.
        trace: voltages in mV, from the initial state on; None if not asked for.
    """

    bursts: Bursts
    spikes: list[Int[np.ndarray, " n"]]
    trace: Float[np.ndarray, "3 samples"] | None


def engine() -> Any:
    """Return the compiled functions.

    Raises:
        InputError: Numba is not installed.
    """
    try:
        from unle_bench.pyloric import compiled
    except ModuleNotFoundError as error:
        if error.name != "numba":
            raise
        raise InputError(
            "on a CPU the pyloric simulator needs Numba, which is not installed; try: pip install 'unle[pyloric]'"
        ) from None
    return compiled


@cache
def _constants() -> tuple[np.ndarray, np.ndarray]:
    return table(), np.ascontiguousarray(edge_weights())


def conductances(theta: Float[np.ndarray, " dim"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return conductances in mS: of channels (3, 8), glutamate (from, to), acetylcholine (to,)."""
    theta = np.asarray(theta, dtype=np.float64)
    if theta.shape != (DIM,):
        raise InputError(f"expected one vector of {DIM} parameters; got shape {theta.shape}.")
    synapses = np.exp(theta[24:])
    glutamate, acetylcholine = np.zeros((3, 3)), np.zeros(3)
    for position, source, target in GLUTAMATE:
        glutamate[source, target] = synapses[position]
    for position, target in ACETYLCHOLINE:
        acetylcholine[target] = synapses[position]
    return AREA * theta[:24].reshape(3, 8), glutamate, acetylcholine


def run(
    theta: Float[np.ndarray, " dim"],
    noise: np.random.Generator | Float[np.ndarray, "steps 3"],
    *,
    samples: int = SAMPLES,
    with_trace: bool = False,
    with_plateaus: bool = False,
) -> Simulated:
    """Simulate once.

    Args:
        theta: the 31 parameters, see `specification.NAMES`.
        noise: a generator, or the standard normal noise of each step, one fewer than samples; zeros for none.
        samples: of V, the initial state included; 440,000 are the eleven seconds of the model.
        with_trace: keep the voltages.
        with_plateaus: measure the plateaus of bursts.
    """
    compiled = engine()
    look_up, edges = _constants()
    parameters = conductances(theta)
    v, calcium = np.full(3, V_START), np.full(3, CALCIUM_START)
    state = (v, calcium, np.zeros((3, N_GATES + 1)), np.zeros(1))
    trace = np.empty((3, samples)) if with_trace or with_plateaus else None
    # the initial state is the first sample, and comes without a step
    buffer = np.full((3, TAIL + PIECE), V_START)
    draws = np.empty((PIECE, 3))
    spikes = np.zeros((3, MOST_SPIKES + 1), dtype=np.int64)
    progress = np.full((3, 3), -1, dtype=np.int64)
    progress[:, 2] = 0
    starts, ends = np.zeros((2, 3, MOST_BURSTS), dtype=np.int64)
    for begin in range(0, samples, PIECE):
        length = min(PIECE, samples - begin)
        first = int(begin == 0)  # this sample needs no step
        steps = length - first
        if isinstance(noise, np.random.Generator):
            noise.standard_normal(out=draws[:steps])
            current = draws[:steps]
        else:
            current = np.ascontiguousarray(noise[begin + first - 1 : begin + length - 1], dtype=np.float64)
        compiled.advance(CONSTANTS, look_up, *parameters, current, *state, buffer[:, TAIL + first : TAIL + length])
        if trace is not None:
            trace[:, begin : begin + length] = buffer[:, TAIL : TAIL + length]
        if begin >= SKIPPED:
            opening, closing = begin == SKIPPED, begin + length == samples
            skip = TAIL if opening else 0
            for j in range(3):
                if not (opening or closing) and buffer[j, : TAIL + length].max() <= compiled.WARM:
                    continue  # too cold for spikes: most of the time, between bursts
                compiled.find_spikes(
                    RULES,
                    buffer[j, skip : TAIL + length],
                    begin - SKIPPED - TAIL + skip,
                    0,
                    closing,
                    edges[HALF],
                    edges,
                    spikes[j],
                    progress[j],
                    starts[j],
                    ends[j],
                )
        buffer[:, :TAIL] = buffer[:, length : length + TAIL]
    bursts = Bursts(starts, ends, progress[:, 2])
    if trace is not None and with_plateaus:
        plateaus = np.zeros_like(starts)
        for j in range(3):
            compiled.find_plateaus(RULES, trace[j, SKIPPED:], starts[j], progress[j, 2], edges, plateaus[j])
        bursts = bursts._replace(plateaus=plateaus)
    return Simulated(bursts, [row[: row[-1]].copy() for row in spikes], trace if with_trace else None)
