"""Tasks and methods by name: the built-in ones, one line each, and those of files that a user brings.

A file of one's own defines `METHODS`, a dictionary of method adapters by name, or `TASKS`, a list of tasks, or both:

    from unle_bench.methods import Amortised
    METHODS = {"mine": Amortised(lambda task: MyMethod(task.prior))}      # anything with fit((theta, x), seed=...)
"""

import difflib
import importlib.util
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from unle.errors import InputError
from unle.methods import AUNLE, NLE, SMNLE, SNLE, SUNLE, ByExchange, Divi, Online
from unle.models import ConditionalLikelihood, Ensemble, SplineFlow, check_flows
from unle.posterior import Exchange, Posterior
from unle.train import EnergyTraining, PersistentChains, WarmSmc
from unle_bench import TASKS
from unle_bench.methods.method_adapter import (
    AbstractMethodAdapter,
    Amortised,
    Exact,
    FromPrior,
    Sequential,
    SequentialTogether,
)
from unle_bench.methods.peers import Peer
from unle_bench.tasks.task import Task


def by_exchange(posterior: Posterior) -> Posterior:
    """Sample AUNLE's posterior as if Z depended on theta, to see whether it does (first member of an ensemble)."""
    likelihood = posterior.likelihood
    assert isinstance(likelihood, Ensemble), "for tasks without failures"
    first = likelihood.member(0)
    return Posterior(posterior.prior, ConditionalLikelihood(first.theta_space, first.x_space, first.model), Exchange())


def base_alone(task):
    """Return AUNLE whose energies never train: the ensemble of conditional Gaussians, the honest control."""
    return AUNLE(task.prior, training=EnergyTraining(iterations=1))


def followed_by(particles):
    """Return AUNLE whose training follows the model with other particles."""
    return lambda task: AUNLE(task.prior, training=EnergyTraining(particles))


def in_rounds_as_printed(normaliser):
    """Return SUNLE of the paper, with one of its ways to deal with Z(theta)."""
    return SequentialTogether(
        lambda task, simulator: SUNLE.paper(task.prior, simulator, normaliser=normaliser),
    )


METHODS: dict[str, AbstractMethodAdapter] = {
    "aunle": Amortised(lambda task: AUNLE(task.prior)),
    "sunle": Sequential(lambda task, simulator: SUNLE(task.prior, simulator)),
    "nle": Amortised(lambda task: NLE(task.prior), needs=check_flows),
    "nle-spline": Amortised(lambda task: NLE(task.prior, flow=SplineFlow()), needs=check_flows),
    "snle": Sequential(lambda task, simulator: SNLE(task.prior, simulator), needs=check_flows),
    "snle-spline": Sequential(
        lambda task, simulator: SNLE(task.prior, simulator, flow=SplineFlow()), needs=check_flows
    ),
    "smnle-sm": Amortised(lambda task: SMNLE(task.prior)),
    "smnle-ssm": Amortised(lambda task: SMNLE(task.prior, sliced=True)),
    "gaussian": Amortised(base_alone),
    "aunle-mala-30": Amortised(followed_by(PersistentChains(moves=30))),
    "aunle-mala-200": Amortised(followed_by(PersistentChains(moves=200))),
    "aunle-smc-5": Amortised(followed_by(WarmSmc(temperatures=5))),
    "aunle-smc-20": Amortised(followed_by(WarmSmc(temperatures=20))),
    "aunle-single": Amortised(lambda task: AUNLE(task.prior, members=1)),
    "aunle-exchange": Amortised(lambda task: AUNLE(task.prior, members=1), change=by_exchange),
    "sunle-exchange": Sequential(lambda task, simulator: SUNLE(task.prior, simulator, normaliser=ByExchange())),
    "aunle-paper": Amortised(lambda task: AUNLE.paper(task.prior)),
    "aunle-paper-smc": Amortised(lambda task: AUNLE.paper(task.prior, particles=WarmSmc(temperatures=20))),
    "sunle-paper": in_rounds_as_printed(ByExchange()),
    "sunle-paper-divi": in_rounds_as_printed(Divi()),
    "sunle-paper-online": in_rounds_as_printed(Online()),
    "sbi-nle": Peer("nle"),
    "sbi-snle": Peer("nle", rounds=10),
    "sbi-npe": Peer("npe"),
    "prior": FromPrior(),
    "exact": Exact(),
}


@dataclass(frozen=True)
class Registry:
    """Everything that can be named in a sweep."""

    tasks: dict[str, Task] = field(default_factory=lambda: dict(TASKS))
    methods: dict[str, AbstractMethodAdapter] = field(default_factory=lambda: dict(METHODS))

    @classmethod
    def with_files(cls, files: Iterable[str] = ()) -> "Registry":
        """Return the built-in tasks and methods and those that the files define."""
        return _with_files(tuple(str(file) for file in files))

    def task(self, name: str) -> Task:
        """Return a task."""
        if name not in self.tasks:
            raise InputError(_unknown("task", name, self.tasks))
        return self.tasks[name]

    def method(self, name: str) -> AbstractMethodAdapter:
        """Return a method."""
        if name not in self.methods:
            raise InputError(_unknown("method", name, self.methods))
        return self.methods[name]


@lru_cache(maxsize=8)
def _with_files(files: tuple[str, ...]) -> Registry:
    registry = Registry()
    for file in files:
        module = _execute(Path(file))
        methods, tasks = getattr(module, "METHODS", {}), getattr(module, "TASKS", [])
        if not methods and not tasks:
            raise InputError(f"expected {file} to define METHODS (a dictionary) or TASKS (a list); it defines neither.")
        for name, method in methods.items():
            if not isinstance(method, AbstractMethodAdapter):
                raise InputError(
                    f"expected method adapters in METHODS of {file}; {name!r} is a {type(method).__name__}."
                )
        registry.methods.update(methods)
        registry.tasks.update({task.name: task for task in tasks})
    return registry


def _execute(path: Path):
    if not path.is_file():
        raise InputError(f"expected a Python file with METHODS or TASKS; there is no file {path}.")
    name = f"unle_bench_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(f"{path} could not be run: {type(error).__name__}: {error}") from error
    return module


def _unknown(kind: str, name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    hint = f"; did you mean {near[0]}?" if near else "."
    return f"expected one of the {kind}s {', '.join(known)}; got {name!r}{hint}"
