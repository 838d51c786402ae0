"""Samplers: Markov kernels, chains, particles and sequential Monte Carlo.

Everything here sees log-densities as plain functions of one point, and knows nothing of models or data.
"""

from unle.samplers.bridge import BridgeInfo, bridge
from unle.samplers.chains import ChainRun, run_chains
from unle.samplers.kernels import AbstractKernel, Hmc, KernelInfo, Mala, Nuts, RandomWalk
from unle.samplers.particles import (
    Particles,
    ess,
    log_mean_exp,
    normalise,
    systematic_indices,
    systematic_resample,
)
from unle.samplers.refresh import refresh
from unle.samplers.step_size import AbstractStepSize, PerChainStepSize, SharedStepSize, StepSizeState
from unle.samplers.sweep import Sweep, TemperedParticles
from unle.samplers.tempered import TemperedPath, TemperedRun, tempered_smc
from unle.samplers.whitening import Whitening, fit_whitening

__all__ = [
    "AbstractKernel",
    "AbstractStepSize",
    "BridgeInfo",
    "ChainRun",
    "Hmc",
    "KernelInfo",
    "Mala",
    "Nuts",
    "Particles",
    "PerChainStepSize",
    "RandomWalk",
    "SharedStepSize",
    "StepSizeState",
    "Sweep",
    "TemperedParticles",
    "TemperedPath",
    "TemperedRun",
    "Whitening",
    "bridge",
    "ess",
    "fit_whitening",
    "log_mean_exp",
    "normalise",
    "refresh",
    "run_chains",
    "systematic_indices",
    "systematic_resample",
    "tempered_smc",
]
