"""The engine for CPUs, compiled by Numba: import this module only where Numba is installed.

Everything that depends on V alone is tabulated and interpolated, so that one step of one neuron costs one exponential,
one division or two and about two hundred additions and multiplications. Compiled code is cached on disk, and the cache
does not notice a constant that changes in another file: constants come as arguments.
"""

import math
from typing import no_type_check  # what checks annotations in tests would get between a function and its compiler

import numpy as np
from numba import njit

# The smoothed voltage can exceed -10 mV only where the voltage itself exceeds this nearby: the weights of the filter
# that are negative sum to -0.16, and V does not fall below -82 mV.
WARM = -20.0
HALF, WIDTH = 10, 21  # of the filter
KCA, GLUTAMATE = 4, 11  # positions among the gates
# exp(-x) = POWERS[i] exp(-r), x = i / 32 + r: inlined, where a call of the library would hold up the core
POWERS = np.exp(-np.arange(1280) / 32)


@njit(inline="always")
@no_type_check
def _exp_minus(x):
    place = min(x, 39.9) * 32
    i = int(place)
    r = (i - place) / 32
    square = r * r
    series = 1 + r + square * ((1 / 2 + r * (1 / 6)) + square * (1 / 24 + r * (1 / 120)))
    return POWERS[i] * series


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract", "arcp", "nsz", "reassoc"})
@no_type_check
def advance(constants, table, channels, glutamate, acetylcholine, noise, v, calcium, gates, extra, trace):
    """Integrate over `len(noise)` steps; the state is updated in place.

    Args:
        constants: of the model.
        table: parabolas, see `lookup.table`.
        channels: conductances in mS, (3, 8).
        glutamate: conductances in mS, (from, to).
        acetylcholine: conductances in mS, from the PD cells, (to,).
        noise: standard normals, (steps, 3).
        v: voltages, (3,).
        calcium: concentrations, (3,).
        gates: eleven gates and the activation of glutamate, (3, 12).
        extra: activation of acetylcholine, (1,).
        trace: receives the voltages after every step, (3, steps).
    """
    c = constants
    # Three short loops over neurons per step rather than one long one: a core can then work on all three at once.
    new_v, total, driving, steady_calcium = np.empty(3), np.empty(3), np.empty(3), np.empty(3)
    log_ratio, opened = np.empty(3), np.empty(3)
    cell, within = np.empty(3, np.int64), np.empty(3)
    for j in range(3):
        log_ratio[j] = math.log(c.calcium_outside / calcium[j])
    for step in range(noise.shape[0]):
        s_0, s_1, s_2, s_3 = gates[0, GLUTAMATE], gates[1, GLUTAMATE], gates[2, GLUTAMATE], extra[0]
        for j in range(3):
            place = (v[j] - c.first_v) * c.rows_per_mv
            cell[j] = min(max(int(place), 0), c.last_row)
            within[j] = place - cell[j]
            inhibition = s_0 * glutamate[0, j] + s_1 * glutamate[1, j] + s_2 * glutamate[2, j]
            cholinergic = s_3 * acetylcholine[j]
            c_na = channels[j, 0] * gates[j, 0] * (gates[j, 0] * gates[j, 0]) * gates[j, 7]
            c_ca = (
                channels[j, 1] * gates[j, 1] * (gates[j, 1] * gates[j, 1]) * gates[j, 8]
                + channels[j, 2] * gates[j, 2] * (gates[j, 2] * gates[j, 2]) * gates[j, 9]
            )
            square_kca, square_kd = gates[j, 4] * gates[j, 4], gates[j, 5] * gates[j, 5]
            c_k = (
                channels[j, 3] * gates[j, 3] * (gates[j, 3] * gates[j, 3]) * gates[j, 10]
                + channels[j, 4] * square_kca * square_kca
                + channels[j, 5] * square_kd * square_kd
            )
            c_h, c_leak = channels[j, 6] * gates[j, 6], channels[j, 7]
            e_ca = c.nernst * log_ratio[j]
            steady_calcium[j] = c.calcium_rest - c.calcium_per_current * c_ca * (v[j] - e_ca)
            total[j] = (inhibition + cholinergic) + (c_na + c_ca) + (c_k + c_h) + c_leak
            driving[j] = (
                (c.e_glutamate * inhibition + c.e_acetylcholine * cholinergic)
                + (c.e_na * c_na + e_ca * c_ca)
                + (c.e_k * c_k + c.e_h * c_h)
                + (c.e_leak * c_leak + c.noise * noise[step, j])
            )
        for j in range(3):
            if total[j] > 0:
                decay = _exp_minus(c.step_per_capacitance * total[j])
                new_v[j] = v[j] + (driving[j] / total[j] - v[j]) * (1 - decay)
            else:
                new_v[j] = v[j] + c.step_per_capacitance * driving[j]
            old = calcium[j]
            change = (steady_calcium[j] - old) * c.calcium_decay
            calcium[j] = old + change
            opened[j] = old / (old + c.calcium_half)
            # log(new / old) = 2 artanh z, by its series; all powers of z that matter in double precision
            z = change / (old + calcium[j])
            if abs(z) < 0.02:
                log_ratio[j] -= 2 * z * (1 + z * z * (1 / 3 + z * z * (1 / 5 + z * z * (1 / 7))))
            else:
                log_ratio[j] = math.log(c.calcium_outside / calcium[j])
        for j in range(3):
            k, f = cell[j], within[j]
            m_kca = gates[j, KCA]
            for gate in range(11):
                steady = table[k, 0, gate] + f * (table[k, 1, gate] + f * table[k, 2, gate])
                share = table[k, 3, gate] + f * (table[k, 4, gate] + f * table[k, 5, gate])
                gates[j, gate] += (steady - gates[j, gate]) * share
            steady = table[k, 0, KCA] + f * (table[k, 1, KCA] + f * table[k, 2, KCA])
            share = table[k, 3, KCA] + f * (table[k, 4, KCA] + f * table[k, 5, KCA])
            gates[j, KCA] = m_kca + (steady * opened[j] - m_kca) * share
            steady = table[k, 0, GLUTAMATE] + f * (table[k, 1, GLUTAMATE] + f * table[k, 2, GLUTAMATE])
            share = table[k, 3, GLUTAMATE] + f * (table[k, 4, GLUTAMATE] + f * table[k, 5, GLUTAMATE])
            gates[j, GLUTAMATE] += (steady - gates[j, GLUTAMATE]) * min(1.0, share)
            if j == 0:
                extra[0] = s_3 + (steady - s_3) * min(1.0, c.acetylcholine_speed * share)
            v[j] = new_v[j]
            trace[j, step] = new_v[j]


@njit(cache=True, nogil=True, error_model="numpy")
@no_type_check
def find_spikes(rules, trace, offset, first, last, weights, edges, spikes, state, starts, ends):
    """Find the spikes of one neuron in a stretch of its voltage and put them into bursts.

    Args:
        rules: what a spike and a burst are.
        trace: voltages, of which position p is sample `offset + p` of the record.
        offset: see `trace`.
        first: first sample of the record, to which no spike may come before.
        last: whether the record ends with this stretch.
        weights: of the filter.
        edges: weights of the filter near an end.
        spikes: receives the samples of spikes, as far as there is room; its last entry counts them.
        state: last spike (-1 if none yet), start of the running burst, number of bursts.
        starts: of the bursts.
        ends: of the bursts.
    """
    n = len(trace)
    begin = 0 if offset == first else HALF
    end = n if last else n - HALF
    # smoothed[p] is only computed near warm samples
    warm_until = -1
    before, here = -1e9, -1e9  # smoothed at p - 2 and p - 1
    for ahead in range(min(begin + HALF + 1, n)):
        if trace[ahead] > WARM:
            warm_until = ahead + HALF + 2
    if begin == 0:  # the cubic at an end depends on all samples there
        warm_until = WIDTH + 2
    for p in range(begin, end):
        ahead = p + HALF + 1
        if ahead < n and trace[ahead] > WARM:
            warm_until = ahead + HALF + 2
        if last and p == n - WIDTH - 2:
            warm_until = n
        if p <= warm_until:
            centre = min(max(p, HALF), n - 1 - HALF)
            value = 0.0
            if p == centre:
                for q in range(WIDTH):
                    value += weights[q] * trace[p - HALF + q]
            else:
                for q in range(WIDTH):
                    value += edges[p - centre + HALF, q] * trace[centre - HALF + q]
        else:
            value = -1e9
        if p >= begin + 2 and here > rules.spike_above and before <= here and value <= here:
            sample = offset + p - 2
            count = spikes[-1]
            if count < len(spikes) - 1:
                spikes[count] = sample
            spikes[-1] = count + 1
            _burst(rules, sample, state, starts, ends)
        before, here = here, value
    if last:
        _close(rules, state, starts, ends)


@njit(cache=True, nogil=True)
@no_type_check
def _burst(rules, sample, state, starts, ends):
    if state[0] < 0 or sample - state[0] >= rules.gap:
        _close(rules, state, starts, ends)
        state[1] = sample
    state[0] = sample


@njit(cache=True, nogil=True)
@no_type_check
def _close(rules, state, starts, ends):
    if state[0] >= 0 and state[0] - state[1] > rules.shortest:
        starts[state[2]], ends[state[2]] = state[1], state[0]
        state[2] += 1


@njit(cache=True, nogil=True, error_model="numpy")
@no_type_check
def find_plateaus(rules, trace, starts, number, edges, plateaus):
    """Find the longest stretch above a threshold from the start of each burst of one neuron to the next start.

    Args:
        rules: the threshold, and how many samples to pass over.
        trace: all voltages of the record.
        starts: of the bursts.
        number: how many bursts.
        edges: weights of the filter near an end; the middle row is the filter.
        plateaus: receives the lengths, in samples.
    """
    n = len(trace)
    for b in range(number):
        end = starts[b + 1] if b + 1 < number else n
        longest, running = 0, 0
        for p in range(starts[b], end, rules.plateau_every):
            centre = min(max(p, HALF), n - 1 - HALF)
            value = 0.0
            for q in range(WIDTH):
                value += edges[p - centre + HALF, q] * trace[centre - HALF + q]
            running = running + 1 if value > rules.plateau_above else 0
            longest = max(longest, running)
        plateaus[b] = longest * rules.plateau_every
