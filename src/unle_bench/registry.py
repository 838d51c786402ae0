"""Tasks and methods by name: the built-in ones, and those of files that a user brings.

A file of one's own defines `METHODS`, a dictionary of contestants by name, or `TASKS`, a list of tasks, or both:

    from unle_bench.contestant import Amortised
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
from unle_bench import TASKS
from unle_bench.contestant import AbstractContestant
from unle_bench.methods import METHODS
from unle_bench.tasks.task import Task


@dataclass(frozen=True)
class Registry:
    """Everything that can be named in a sweep."""

    tasks: dict[str, Task] = field(default_factory=lambda: dict(TASKS))
    methods: dict[str, AbstractContestant] = field(default_factory=lambda: dict(METHODS))

    @classmethod
    def with_files(cls, files: Iterable[str] = ()) -> "Registry":
        """Return the built-in tasks and methods and those that the files define."""
        return _with_files(tuple(str(file) for file in files))

    def task(self, name: str) -> Task:
        """Return a task."""
        if name not in self.tasks:
            raise InputError(_unknown("task", name, self.tasks))
        return self.tasks[name]

    def method(self, name: str) -> AbstractContestant:
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
            if not isinstance(method, AbstractContestant):
                raise InputError(f"expected contestants in METHODS of {file}; {name!r} is a {type(method).__name__}.")
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
