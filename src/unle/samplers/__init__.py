"""Samplers: Markov kernels, chains, particles and sequential Monte Carlo.

Everything here sees log-densities as plain functions of one point, and knows nothing of models or data.
"""

from unle.samplers.bridge import BridgeInfo, bridge
from unle.samplers.chains import ChainRun, run_chains, run_chains_beside, run_chains_each
from unle.samplers.devices import over_devices
from unle.samplers.exchange import ExchangeRun, ExchangeSteps, InnerHealth, exchange
from unle.samplers.following import FollowingInner
from unle.samplers.inner import AbstractInner, Family, InnerDraw, RejectionInner, TemperedInner
from unle.samplers.kernels import AbstractKernel, Hmc, KernelInfo, Mala, Nuts, RandomWalk
from unle.samplers.particles import (
    Particles,
    ess,
    log_mean_exp,
    normalise,
    systematic_indices,
    systematic_resample,
)
from unle.samplers.proposals import AbstractProposal, Langevin, SurrogateWalks, Walk
from unle.samplers.refresh import refresh
from unle.samplers.step_size import AbstractStepSize, PerChainStepSize, SharedStepSize, StepSizeState
from unle.samplers.sweep import Sweep, TemperedParticles
from unle.samplers.tempered import TemperedPath, TemperedRun, tempered_smc
from unle.samplers.whitening import Whitening, fit_whitening

__all__ = [
    "AbstractInner",
    "AbstractKernel",
    "AbstractProposal",
    "AbstractStepSize",
    "BridgeInfo",
    "ChainRun",
    "ExchangeRun",
    "ExchangeSteps",
    "Family",
    "FollowingInner",
    "Hmc",
    "InnerDraw",
    "InnerHealth",
    "KernelInfo",
    "Langevin",
    "Mala",
    "Nuts",
    "Particles",
    "PerChainStepSize",
    "RandomWalk",
    "RejectionInner",
    "SharedStepSize",
    "StepSizeState",
    "SurrogateWalks",
    "Sweep",
    "TemperedInner",
    "TemperedParticles",
    "TemperedPath",
    "TemperedRun",
    "Walk",
    "Whitening",
    "bridge",
    "ess",
    "exchange",
    "fit_whitening",
    "log_mean_exp",
    "normalise",
    "refresh",
    "run_chains",
    "run_chains_beside",
    "run_chains_each",
    "over_devices",
    "systematic_indices",
    "systematic_resample",
    "tempered_smc",
]
