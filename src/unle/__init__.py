"""Simulation-based inference with energy-based likelihoods.

>>> import unle
>>> prior = unle.Prior.uniform(low=[-1, -1], high=[1, 1], names=["a", "b"])
>>> prior.dim
2

`unle.simulate` runs a simulator on prior draws, `unle.AUNLE(prior).fit(simulations)` returns a posterior, and
`posterior.sample(x_o, n)` draws from it.
"""

import importlib
from typing import Any

__version__ = "0.2.0"

# Names are imported when first used: a simulator's worker process must not pay for JAX, nor an import for plotting.
_PUBLIC = {
    "unle.errors": ("FitError", "InputError", "SimulationError", "StoreError", "UnleError", "UnleWarning"),
    "unle.space": ("Prior",),
    "unle.simulators": ("Simulations", "batched", "command", "dry_run", "jax_simulator", "simulate"),
    "unle.methods": ("AUNLE", "SUNLE", "NLE", "SNLE", "SMNLE", "ByExchange", "Divi", "Online", "Tilted"),
    "unle.posterior": ("Posterior", "Draws", "Chains", "Exchange", "TemperedSmc"),
    "unle.diagnose": ("c2st", "z_uniformity"),
    "unle_bench": ("task",),
}
_HOMES = {name: module for module, names in _PUBLIC.items() for name in names}
# Everything else is found in its room: `unle.train.EnergyTraining`, `unle.samplers.Nuts`, `unle.plot.pairs`.
_ROOMS = (
    "diagnose",
    "errors",
    "methods",
    "models",
    "plot",
    "posterior",
    "report",
    "samplers",
    "simulators",
    "space",
    "store",
    "train",
)

# What other libraries call it.
_ELSEWHERE = {
    "BoxUniform": "unle.Prior.uniform(low, high)",
    "simulate_for_sbi": "unle.simulate(simulator, prior, 1000)",
    "NPE": "unle.AUNLE(prior)",
    "NRE": "unle.AUNLE(prior)",
    "pairplot": "unle.plot.pairs(draws)",
    "sample": "posterior.sample(x_o, 10_000)",
    "sample_prior_predictive": "unle.simulate(simulator, prior, 1000).x",
    "sample_posterior_predictive": "unle.simulators.simulate_at(simulator, np.asarray(draws)).x",
}
# Distributions that a prior is made of: not ours.
_FAMILIES = ("Normal", "HalfNormal", "LogNormal", "Uniform", "Gamma", "Beta", "Exponential", "HalfCauchy", "StudentT")

__all__ = sorted([*_HOMES, "__version__"])


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"unle.{name}")
    if name not in _HOMES:
        hint = f"; try {_ELSEWHERE[name]}" if name in _ELSEWHERE else ""
        if name in _FAMILIES:
            hint = f"; try numpyro's, scipy's or torch's, as in unle.Prior({{'a': numpyro.distributions.{name}(...)}})"
        raise AttributeError(f"module 'unle' has no attribute {name!r}{hint}")
    try:
        module = importlib.import_module(_HOMES[name])
    except ModuleNotFoundError as error:
        if error.name != "unle_bench":
            raise
        raise ModuleNotFoundError(
            f"unle.{name} needs the package unle_bench, which the distribution `unle` installs too; "
            "try: pip install --force-reinstall --no-deps unle",
            name=error.name,
        ) from None
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted([*__all__, *_ROOMS])
