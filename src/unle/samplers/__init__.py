"""Samplers: Markov kernels, chains, particles, sequential Monte Carlo and the exchange algorithm.

In: log-densities as plain functions of one point, starting positions, a key.  Out: draws, with what tells whether to
trust them.  Nothing here knows of models or data.

Every file of an algorithm has five parts in this order: what it does and where it was published; its constants; the
types of its state and result; the algorithm; its steps and checks.

Read `kernels`, `step_size` and `chains` first.  Then `particles` and `bridge`; `sweep` and `tempered` for posteriors
with several modes; `inner` and `exchange` for doubly intractable posteriors.
"""

from unle.samplers.bridge import BridgeInfo, Path, bridge
from unle.samplers.chains import ChainRun, refresh, run_chains, run_chains_each, run_chains_given
from unle.samplers.exchange import (
    AbstractProposal,
    ExchangeRun,
    ExchangeTarget,
    InnerHealth,
    Langevin,
    SurrogateWalks,
    Walk,
    exchange,
)
from unle.samplers.inner import AbstractInner, ChainInner, Family, InnerDraw, RejectionInner, TemperedInner
from unle.samplers.kernels import AbstractKernel, Hmc, KernelInfo, LogDensity, Mala, Nuts, RandomWalk
from unle.samplers.particles import (
    Particles,
    Room,
    Whitening,
    choose_rows,
    ess,
    fit_whitening,
    largest_log_power,
    log_mean_exp,
    normalise,
    over_devices,
    systematic_indices,
)
from unle.samplers.step_size import AbstractStepSize, PerChainStepSize, SharedStepSize, StepSizeState
from unle.samplers.sweep import SurrogateSweep, Sweep, TemperedParticles
from unle.samplers.tempered import TemperedPath, TemperedRun, tempered_smc

__all__ = [
    "AbstractInner",
    "AbstractKernel",
    "AbstractProposal",
    "AbstractStepSize",
    "BridgeInfo",
    "ChainInner",
    "ChainRun",
    "ExchangeRun",
    "ExchangeTarget",
    "Family",
    "Hmc",
    "InnerDraw",
    "InnerHealth",
    "KernelInfo",
    "Langevin",
    "LogDensity",
    "Mala",
    "Nuts",
    "Particles",
    "Path",
    "PerChainStepSize",
    "RandomWalk",
    "RejectionInner",
    "Room",
    "SharedStepSize",
    "StepSizeState",
    "SurrogateSweep",
    "SurrogateWalks",
    "Sweep",
    "TemperedInner",
    "TemperedParticles",
    "TemperedPath",
    "TemperedRun",
    "Walk",
    "Whitening",
    "bridge",
    "choose_rows",
    "ess",
    "exchange",
    "fit_whitening",
    "largest_log_power",
    "log_mean_exp",
    "normalise",
    "refresh",
    "run_chains",
    "run_chains_given",
    "run_chains_each",
    "over_devices",
    "systematic_indices",
    "tempered_smc",
]
