"""The benchmark and the paper: tasks with exact posteriors, methods scored on them, and figures of the results.

It stands on the public names of `unle`, which knows nothing of it.

>>> import unle_bench
>>> unle_bench.task("two_moons").dim_theta
2

Reading order: `tasks` and `pyloric` (what is inferred), `methods` (how), `sweep` (running all of them), `results`
(what came out, beside published numbers), `paper` and `plot` (figures and pages), `adversary` (simulators that attack
the defaults of the methods), `cli` (the verbs `tasks`, `bench`, `adversary` and `paper` of the command line).
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from unle.errors import InputError

if TYPE_CHECKING:
    from unle_bench.tasks.task import Task

_MODULES = {
    "two_moons": "two_moons",
    "slcp": "slcp",
    "lotka_volterra": "lotka_volterra",
    "gaussian_linear_uniform": "gaussian_linear",
    "sir": "sir",
    "gaussian_linear": "gaussian_linear",
    "gaussian_mixture": "gaussian_mixture",
    "bernoulli_glm": "bernoulli_glm",
    "bernoulli_glm_raw": "bernoulli_glm",
    "slcp_distractors": "slcp_distractors",
    "bimodal": "bimodal",
    "pyloric": "pyloric",
    "pyloric_15": "pyloric",
    "pyloric_18": "pyloric",
}


class _Tasks(Mapping[str, "Task"]):
    """The built-in tasks by name; a task is imported when it is asked for, since some take a second."""

    def __getitem__(self, name: str) -> "Task":
        module = import_module(f"unle_bench.tasks.{_MODULES[name]}")
        return module.TASKS[name] if hasattr(module, "TASKS") else module.TASK

    def __contains__(self, name: object) -> bool:
        return name in _MODULES

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULES)

    def __len__(self) -> int:
        return len(_MODULES)


TASKS: Mapping[str, "Task"] = _Tasks()

__all__ = ["TASKS", "Task", "task"]


def task(name: str) -> "Task":
    """Return a built-in task by its name.

    Example:
        >>> task("slcp").dim_x
        8
    """
    if name not in TASKS:
        raise InputError(f"expected one of the tasks {', '.join(TASKS)}; got {name!r}.")
    return TASKS[name]


def __getattr__(name: str) -> Any:
    # Simulator workers import this package for the pyloric network, and `Task` needs jax, which they must not import.
    if name == "Task":
        return import_module("unle_bench.tasks.task").Task
    raise AttributeError(f"module 'unle_bench' has no attribute {name!r}")
