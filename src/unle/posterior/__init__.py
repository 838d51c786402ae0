"""Posteriors: prior, likelihood and observation in, draws out."""

from unle.posterior.ahead import sampler_compiled
from unle.posterior.doubly_intractable import AbstractDoublyIntractableStrategy, Exchange
from unle.posterior.draws import Draws
from unle.posterior.posterior import Posterior
from unle.posterior.strategies import AbstractStrategy, Chains, TemperedSmc
from unle.posterior.walking import WalkingExchange
from unle.posterior.warm_chains import WarmChains

__all__ = [
    "AbstractDoublyIntractableStrategy",
    "AbstractStrategy",
    "Chains",
    "Draws",
    "Exchange",
    "Posterior",
    "TemperedSmc",
    "WalkingExchange",
    "WarmChains",
    "sampler_compiled",
]
