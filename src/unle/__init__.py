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

__version__ = "0.1.0"

# Names are imported when first used: a simulator's worker process must not pay for JAX, nor an import for plotting.
_HOMES = {
    "AUNLE": "unle.methods",
    "BaseParticles": "unle.train",
    "ByExchange": "unle.methods",
    "Chains": "unle.posterior",
    "Descent": "unle.train",
    "DataParticles": "unle.train",
    "Divi": "unle.methods",
    "Draws": "unle.posterior",
    "Exchange": "unle.posterior",
    "FitError": "unle.errors",
    "FixedBase": "unle.train",
    "FlowTraining": "unle.train",
    "GaussianTraining": "unle.train",
    "Hmc": "unle.samplers",
    "InputError": "unle.errors",
    "Langevin": "unle.samplers",
    "LogNormaliserTraining": "unle.train",
    "Maf": "unle.models",
    "Mala": "unle.samplers",
    "NLE": "unle.methods",
    "Nuts": "unle.samplers",
    "Online": "unle.methods",
    "PairedChains": "unle.train",
    "PairedSmc": "unle.train",
    "PersistentChains": "unle.train",
    "Posterior": "unle.posterior",
    "Prior": "unle.space",
    "RandomWalk": "unle.samplers",
    "RejectionInner": "unle.samplers",
    "SMNLE": "unle.methods",
    "SNLE": "unle.methods",
    "SUNLE": "unle.methods",
    "ScoreMatching": "unle.train",
    "SequentialRun": "unle.methods",
    "SimulationError": "unle.errors",
    "Simulations": "unle.simulators",
    "SplineFlow": "unle.models",
    "StoreError": "unle.errors",
    "SurrogateWalks": "unle.samplers",
    "TemperedInner": "unle.samplers",
    "TemperedSmc": "unle.posterior",
    "Tilted": "unle.methods",
    "TiltedTraining": "unle.train",
    "UnleError": "unle.errors",
    "UnleWarning": "unle.errors",
    "ValidityTraining": "unle.train",
    "Walk": "unle.samplers",
    "WarmSmc": "unle.train",
    "ZUniformity": "unle.diagnose",
    "batched": "unle.simulators",
    "c2st": "unle.diagnose",
    "command": "unle.simulators",
    "dry_run": "unle.simulators",
    "jax_simulator": "unle.simulators",
    "simulate": "unle.simulators",
    "task": "unle_bench",
    "z_uniformity": "unle.diagnose",
}

__all__ = sorted([*_HOMES, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'unle' has no attribute {name!r}")
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
    return __all__
