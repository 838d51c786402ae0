"""Posteriors: prior, likelihood and observation in, draws out.

Read `posterior` first (what a user calls) and `draws` (what it returns).  `posterior_samplers` and `doubly_intractable`
are the ways to draw, for the two kinds of likelihood; `run_sampler` is the compiled program that runs one of them.
"""

from unle.posterior.doubly_intractable import AbstractDoublyIntractableSampler, Exchange, WalkingExchange
from unle.posterior.draws import Draws
from unle.posterior.posterior import Posterior
from unle.posterior.posterior_samplers import AbstractPosteriorSampler, Chains, TemperedSmc, WarmChains
from unle.posterior.run_sampler import precompile_sampler

__all__ = [
    "AbstractDoublyIntractableSampler",
    "AbstractPosteriorSampler",
    "Chains",
    "Draws",
    "Exchange",
    "Posterior",
    "TemperedSmc",
    "WalkingExchange",
    "WarmChains",
    "precompile_sampler",
]
