"""Benchmark tasks with exact answers, and what is needed to score a method on them."""

from unle.bench.task import Task
from unle.bench.tasks import bimodal, gaussian_linear_uniform, lotka_volterra, pyloric, slcp, two_moons
from unle.errors import InputError

TASKS: dict[str, Task] = {
    module.TASK.name: module.TASK for module in (two_moons, slcp, lotka_volterra, gaussian_linear_uniform, bimodal)
} | pyloric.TASKS

__all__ = ["TASKS", "Task", "task"]


def task(name: str) -> Task:
    """Return a built-in task by its name.

    Example:
        >>> task("slcp").dim_x
        8
    """
    if name not in TASKS:
        raise InputError(f"expected one of the tasks {', '.join(TASKS)}; got {name!r}.")
    return TASKS[name]
