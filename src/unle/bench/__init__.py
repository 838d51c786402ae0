"""Benchmark tasks with exact answers, and what is needed to score a method on them."""

from unle.bench.task import Task
from unle.bench.tasks import (
    bernoulli_glm,
    bernoulli_glm_raw,
    bimodal,
    gaussian_linear,
    gaussian_linear_uniform,
    gaussian_mixture,
    lotka_volterra,
    pyloric,
    sir,
    slcp,
    slcp_distractors,
    two_moons,
)
from unle.errors import InputError

TASKS: dict[str, Task] = {
    module.TASK.name: module.TASK
    for module in (
        two_moons,
        slcp,
        lotka_volterra,
        gaussian_linear_uniform,
        sir,
        gaussian_linear,
        gaussian_mixture,
        bernoulli_glm,
        bernoulli_glm_raw,
        slcp_distractors,
        bimodal,
    )
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
