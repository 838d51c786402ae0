"""Posteriors: prior, likelihood and observation in, draws out."""

from unle.posterior.draws import Draws
from unle.posterior.posterior import Posterior
from unle.posterior.strategies import AbstractStrategy, Chains, TemperedSmc

__all__ = ["AbstractStrategy", "Chains", "Draws", "Posterior", "TemperedSmc"]
