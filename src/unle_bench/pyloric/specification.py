r"""The pyloric network of the crab's stomatogastric ganglion: every constant of the model, in one place.

Three neurons, each a single compartment with eight currents and a calcium pool: AB/PD (the pacemaker), LP and PY. Seven
inhibitory synapses join them. All right-hand sides below use the old state; conductances c are in mS, voltages in mV,
currents in uA, times in ms:

    c_k  = area * gbar_k * m_k^p_k * h_k                        channel k of one neuron
    E_Ca = (R T / 2 F) ln(Ca_out / Ca)
    Ca   relaxes to  Ca_0 - f I_Ca  with time constant tau_Ca,  I_Ca = (c_CaT + c_CaS) (V - E_Ca)
    V    relaxes to  N / g  with time constant C / g,  g = sum of all c,  N = sum of c E, plus the noise current
    m, h relax to  m_inf(V), h_inf(V)  with time constants tau(V)
    s    relaxes to  s_inf(V_pre)  with time constant k (1 - s_inf)

"Relaxes" is one exponential Euler step, y += (y_inf - y) (1 - exp(-dt / tau)), except for s, which takes a plain Euler
step y += (y_inf - y) min(1, dt / tau). The noise current is drawn anew in every step, independently for each neuron.

References: Prinz, Bucher and Marder, "Similar network activity from disparate circuit parameters", 2004; Goncalves et
al., "Training deep neural density estimators to identify mechanistic models of neural dynamics", 2020.
"""

import math

import numpy as np

NEURONS = ("AB/PD", "LP", "PY")
CHANNELS = ("Na", "CaT", "CaS", "A", "KCa", "Kd", "H", "leak")
SYNAPSES = ("AB-LP", "PD-LP", "AB-PY", "PD-PY", "LP-PD", "LP-PY", "PY-LP")

# The box of the prior: membrane conductances in mS/cm^2, per neuron in the order of CHANNELS, ...
LOW = {
    "AB/PD": (0.0, 0.0, 0.0, 0.0, 0.0, 25.0, 0.0, 0.0),
    "LP": (0.0, 0.0, 2.0, 10.0, 0.0, 0.0, 0.0, 0.01),
    "PY": (0.0, 0.0, 0.0, 30.0, 0.0, 50.0, 0.0, 0.0),
}
HIGH = {
    "AB/PD": (500.0, 7.5, 8.0, 60.0, 15.0, 150.0, 0.02, 0.01),
    "LP": (200.0, 2.5, 12.0, 60.0, 10.0, 125.0, 0.06, 0.04),
    "PY": (600.0, 12.5, 4.0, 60.0, 5.0, 150.0, 0.06, 0.04),
}
# ... and natural logarithms of synaptic conductances in mS, in the order of SYNAPSES.
SYNAPSE_LOW = (math.log(1e-8),) * 7
SYNAPSE_HIGH = (math.log(1e-2), *(math.log(1e-3),) * 6)

DIM = 3 * len(CHANNELS) + len(SYNAPSES)  # 31
LOWER = np.array([*LOW["AB/PD"], *LOW["LP"], *LOW["PY"], *SYNAPSE_LOW])
UPPER = np.array([*HIGH["AB/PD"], *HIGH["LP"], *HIGH["PY"], *SYNAPSE_HIGH])
NAMES = tuple(f"{neuron} {channel}" for neuron in NEURONS for channel in CHANNELS) + SYNAPSES
UNITS = ("mS/cm^2",) * 24 + ("ln mS",) * 7

AREA = 0.628e-3  # cm^2: mS/cm^2 -> mS
CAPACITANCE = 0.6283e-3  # uF; its last digit is not that of the area
E_NA, E_K, E_H, E_LEAK = 50.0, -80.0, -20.0, -50.0
NERNST = 8.31451e3 * 283.0 / (2 * 96485.3415)  # R T / (2 F) at 283 K, in mV
TAU_CALCIUM, CALCIUM_PER_CURRENT, CALCIUM_OUTSIDE, CALCIUM_REST = 200.0, 14961.0, 3000.0, 0.05  # ms, uM/uA, uM, uM
V_HALF_SYNAPSE, V_SLOPE_SYNAPSE = -35.0, 5.0
E_GLUTAMATE, TAU_GLUTAMATE = -70.0, 40.0
E_ACETYLCHOLINE, TAU_ACETYLCHOLINE = -80.0, 100.0
# Synapses of one transmitter from one neuron share their activation: glutamate from each of the three, by (position in
# SYNAPSES, from, to), and acetylcholine from the PD cells alone, by (position, to).
GLUTAMATE = ((0, 0, 1), (2, 0, 2), (4, 1, 0), (5, 1, 2), (6, 2, 1))
ACETYLCHOLINE = ((1, 1), (3, 2))

STEP = 0.025  # ms
DURATION = 11_000.0  # ms
SAMPLES = 440_000  # of V; the first is the initial state
NOISE = 0.001  # uA: standard deviation of the noise current of one step, whatever the step
V_START, CALCIUM_START = -50.0, 0.05  # all gates and synapses start at zero

# Gates in the order of the state: seven m, then four h.
GATES = ("m Na", "m CaT", "m CaS", "m A", "m KCa", "m Kd", "m H", "h Na", "h CaT", "h CaS", "h A")
N_GATES = len(GATES)
KCA = GATES.index("m KCa")  # the only gate that calcium opens as well: m_inf is multiplied by Ca / (Ca + 3)
CALCIUM_HALF_KCA = 3.0
# x_inf = 1 / (1 + exp((V + a) / b))
STEADY = np.array(
    [
        (25.5, -5.29),
        (27.1, -7.2),
        (33.0, -8.1),
        (27.2, -8.7),
        (28.3, -12.6),
        (12.3, -11.8),
        (75.0, 5.5),
        (48.9, 5.18),
        (32.1, 5.5),
        (60.0, 6.2),
        (56.9, 4.9),
    ]
)


def steady_states(v, exp):
    """Return the eleven x_inf at one voltage.

    Args:
        v: mV; a number or an array.
        exp: the exponential of whatever library `v` belongs to.
    """
    return [1 / (1 + exp((v + a) / b)) for a, b in STEADY.tolist()]


def rates(v, exp):
    """Return the eleven 1 / tau at one voltage, in 1/ms; the arguments are those of `steady_states`.

    Most tau have the form a - b S(V), S = 1 / (1 + e), so that 1 / tau = (1 + e) / (a (1 + e) - b): one division.
    """

    def sloping(high, drop, half, slope):
        e = 1 + exp((v + half) / slope)
        return e / (high * e - drop)

    def bell(base, height, half_1, slope_1, half_2, slope_2):
        e = exp((v + half_1) / slope_1) + exp((v + half_2) / slope_2)
        return e / (base * e + height)

    shoulder = 1 / (1 + exp((v + 34.9) / 3.6))
    return [
        sloping(2.64, 2.52, 120.0, -25.0),
        sloping(43.4, 42.6, 68.1, -20.5),
        bell(2.8, 14.0, 27.0, 10.0, 70.0, -13.0),
        sloping(23.2, 20.8, 32.9, -15.2),
        sloping(180.6, 150.2, 46.0, -22.7),
        sloping(14.4, 12.8, 28.3, -19.2),
        (exp(-14.59 - 0.086 * v) + exp(-1.87 + 0.0701 * v)) / 2,
        (1 + exp((v + 62.9) / -10.0)) / (1.34 * (1.5 + shoulder)),
        sloping(210.0, 179.6, 55.0, -16.9),
        bell(120.0, 300.0, 55.0, 9.0, 65.0, -16.0),
        sloping(77.2, 58.4, 38.9, -26.5),
    ]


def synapse(v, exp):
    """Return s_inf and 1 / (1 - s_inf) at one presynaptic voltage."""
    e = exp((V_HALF_SYNAPSE - v) / V_SLOPE_SYNAPSE)
    return 1 / (1 + e), (1 + e) / e


# A circuit that works, as one draw of the prior in a hundred does. Rounded to four digits, it was valid in 20
# simulations of 20, with a period of 1165 ms, the animal's being 1171. The rest of its rhythm is another: the burst of
# AB/PD is half as long as the animal's.
RHYTHMIC = np.array(
    [
        *(420.6, 5.94, 2.737, 48.33, 12.05, 121.4, 0.002518, 0.007624),  # AB/PD
        *(141.9, 1.568, 5.877, 52.57, 5.847, 38.47, 0.04452, 0.01304),  # LP
        *(305.6, 4.05, 2.222, 55.4, 0.9058, 142.4, 0.04947, 0.001587),  # PY
        *(-17.01, -17.17, -9.452, -10.32, -8.004, -10.16, -8.261),  # synapses
    ]
)
