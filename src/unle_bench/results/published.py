"""What others have published on the same tasks, by the same classifier, with where each number comes from.

The numbers are in `published.csv`: mean C2ST over observations (and seeds), its standard deviation over these runs, how
many they were, minutes of a run, and the source.  All were scored by the benchmark's own classifier on z-scored draws;
results by other classifiers, or without z-scores, are not comparable and are not here.
"""

import csv
import math
from dataclasses import dataclass
from functools import cache
from importlib import resources

# source -> repository and file, hardware
SOURCES: dict[str, tuple[str, str]] = {
    "sbibm": ("sbi-benchmark/results, main_paper.csv", "one CPU thread of AWS c5.24xlarge"),
    "sbibm-mixture": ("sbi-benchmark/results, gaussian_mixture_rerun.csv (corrected simulator)", "not stated"),
    "sbibm-flows-nle": ("sbi-benchmark/results, supplement_hyperparameters_snle.csv", "as sbibm"),
    "sbibm-flows-npe": ("sbi-benchmark/results, supplement_hyperparameters_snpe.csv", "as sbibm"),
    "sbibm-nets-nre": ("sbi-benchmark/results, supplement_hyperparameters_snre.csv", "as sbibm"),
    "sbibm-rf": ("sbi-benchmark/results, supplement_rf_abc.csv", "as sbibm"),
    "sbibm-abc": ("sbi-benchmark/results, supplement_abc_lra_sass.csv", "as sbibm"),
    "unle-aunle": ("pierreglaser/sunle, df_aunle_cached.pkl (observations 1-9, seeds 1-3)", "one NVIDIA RTX 5000"),
    "unle-sunle": ("pierreglaser/sunle, df_sunle_cached.pkl (observations 1-9, seeds 1-3)", "one NVIDIA RTX 5000"),
    "unle-smnle": (
        "pierreglaser/sunle, smnle/results.pkl (observations 1-5; learning rate chosen by MMD to the reference; "
        "z-scored by the approximation)",
        "one GPU, model not stated",
    ),
    "tsnpe": ("mackelab/tsnpe_neurips_dev, results_thr1, column C2ST_Z", "not stated"),
    "nre-c": ("bkmi/cnre, metrics-sbibm*.csv (K = 99, gamma = 1)", "not stated"),
    "gatsbi-moons": ("mackelab/gatsbi, two_moons_c2st_scores.yaml", "not stated"),
    "gatsbi-slcp": ("mackelab/gatsbi, slcp_c2st_scores.yaml", "not stated"),
}
# Methods that simulate around the observation; all others are amortised or need no training.
SEQUENTIAL = frozenset(
    {"SNLE", "SNLE-NSF", "SNPE", "SNPE-MAF", "SNRE", "SNRE-MLP", "SUNLE", "TSNPE", "GATSBI-EBM", "GATSBI-inv"}
    | {"SMC-ABC", "SMC-ABC+LRA", "SMC-ABC+SASS"}
)


@dataclass(frozen=True)
class Published:
    """One published number.

    Attributes:
        method: as its authors call it.
        task: name of the task.
        budget: simulations over all rounds.
        c2st: mean over the runs.
        sd: standard deviation over the runs, if published.
        runs: how many.
        minutes: of one run, if published.
        source: a key of `SOURCES`.
    """

    method: str
    task: str
    budget: int
    c2st: float
    sd: float | None
    runs: int
    minutes: float | None
    source: str

    @property
    def error(self) -> float | None:
        """Standard error over the published runs, taken as independent, if their deviation is published."""
        return None if self.sd is None or self.runs < 2 else self.sd / math.sqrt(self.runs)

    @property
    def sequential(self) -> bool:
        """Whether the method simulates around the observation."""
        return self.method in SEQUENTIAL


@cache
def published() -> tuple[Published, ...]:
    """Return all published numbers.

    Example:
        >>> [one.c2st for one in published() if (one.method, one.task, one.budget) == ("SNLE", "slcp", 1000)]
        [0.92063]
    """
    text = resources.files("unle_bench.results").joinpath("published.csv").read_text(encoding="utf-8")
    return tuple(
        Published(
            row["method"],
            row["task"],
            int(row["budget"]),
            float(row["c2st"]),
            float(row["sd"]) if row["sd"] else None,
            int(row["runs"]),
            float(row["minutes"]) if row["minutes"] else None,
            row["source"],
        )
        for row in csv.DictReader(text.splitlines())
    )


def best(task: str, budget: int, *, sequential: bool) -> Published | None:
    """Return the best published number of a kind, or None."""
    found = [one for one in published() if (one.task, one.budget, one.sequential) == (task, budget, sequential)]
    return min(found, key=lambda one: one.c2st, default=None)


def number_of(method: str, task: str, budget: int) -> Published | None:
    """Return the published number of a method, or None."""
    found = [one for one in published() if (one.method, one.task, one.budget) == (method, task, budget)]
    return found[0] if found else None
