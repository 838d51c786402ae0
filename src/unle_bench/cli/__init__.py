"""The verbs of the benchmark, which `unle.cli` adds to its own: `tasks`, `bench`, `adversary` and `paper`."""

from unle_bench.cli import adversary, bench, paper, tasks

__all__ = ["VERBS"]

# name -> (function, example)
VERBS = {
    "tasks": (tasks.tasks, tasks.EXAMPLE),
    "bench": (bench.bench, bench.EXAMPLE),
    "adversary": (adversary.adversary, adversary.EXAMPLE),
    "paper": (paper.paper, paper.EXAMPLE),
}
