"""Posteriors: prior, likelihood and observation in, draws out."""

from unle.posterior.ahead import sampler_compiled
from unle.posterior.doubly_intractable import AbstractDoublyIntractableSampler, Exchange
from unle.posterior.draws import Draws
from unle.posterior.posterior import Posterior
from unle.posterior.posterior_samplers import AbstractPosteriorSampler, Chains, TemperedSmc
from unle.posterior.walking import WalkingExchange
from unle.posterior.warm_chains import WarmChains

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
    "sampler_compiled",
]
