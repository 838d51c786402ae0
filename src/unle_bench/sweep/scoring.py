"""Score draws against reference draws: C2ST first, then the measures that need no classifier."""

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import jax
import numpy as np

from unle.diagnose import c2st, c2st_fast_batch, discrepancy, energy_score
from unle.errors import InputError, UnleWarning
from unle_bench import TASKS
from unle_bench.tasks.task import Task

CLASSIFIERS = ("fast", "exact")
FAILED = 1.0  # C2ST of a run without a usable result: as bad as can be, never left out
REFERENCE_SEED = 0


@dataclass(frozen=True)
class Scorer:
    """How draws are scored.

    Args:
        draws: of each set; 10,000 is the benchmark's convention, and fewer flatter.
        classifier: "fast" (JAX) or "exact" (scikit-learn).
        jobs: cores that the classifier may use; None for all.
    """

    draws: int = 10_000
    classifier: str = "fast"
    jobs: int | None = None

    def __post_init__(self):
        if self.classifier not in CLASSIFIERS:
            raise InputError(f"expected a classifier among {', '.join(CLASSIFIERS)}; got {self.classifier!r}.")

    def scores(self, task: Task, draws: Mapping[int, np.ndarray]) -> Iterator[tuple[int, dict[str, float]]]:
        """Yield the numbers of every observation as they are ready: all at once on an accelerator, else one by one."""
        together = self.classifier == "fast" and jax.default_backend() != "cpu"
        groups = [list(draws)] if together else [[i] for i in draws]
        for numbers in groups:
            references = [reference_draws(task, i, self.draws) for i in numbers]
            sets = [np.asarray(draws[i]) for i in numbers]
            values = self._c2st(references, sets)
            for i, reference, values_of_i, value in zip(numbers, references, sets, values, strict=True):
                yield i, _numbers(task, i, reference, values_of_i, float(value))

    def _c2st(self, references: list[np.ndarray], sets: list[np.ndarray]) -> np.ndarray:
        if self.classifier == "exact":
            return np.array([c2st(*pair, jobs=self.jobs) for pair in zip(references, sets, strict=True)])
        return c2st_fast_batch(references, sets, jobs=self.jobs)


def problem_with(draws: np.ndarray | None, wanted: int, dim: int) -> str | None:
    """Return why a set of draws cannot be scored, or None; warn if most of them are copies of others."""
    if draws is None:
        return "no draws"
    if draws.shape != (wanted, dim):
        return f"draws of shape {draws.shape}, not ({wanted}, {dim})"
    bad = int((~np.isfinite(draws)).any(axis=1).sum())
    if bad:
        return f"{bad} draws with NaN or inf"
    distinct = len(np.unique(draws, axis=0))
    if 2 * distinct < wanted:
        warnings.warn(
            f"only {distinct} of {wanted} draws are distinct: copies of one draw on both sides of a fold of the "
            "classifier are recognised, so that C2ST comes out too high.",
            UnleWarning,
            stacklevel=2,
        )
    return None


def reference_draws(task: Task, i: int, n: int) -> np.ndarray:
    """Return n reference draws of an observation: the benchmark's own where installed, else exact ones."""
    return _reference(task.name, i, n) if TASKS.get(task.name) is task else _made(task, i, n)


@lru_cache(maxsize=64)
def _reference(name: str, i: int, n: int) -> np.ndarray:
    return _made(TASKS[name], i, n)


def _made(task: Task, i: int, n: int) -> np.ndarray:
    found = task.official_reference(i)
    if found is not None and len(found) >= n:
        return found[:n]
    return task.reference(task.observation(i), n, seed=REFERENCE_SEED + i)


def _numbers(task: Task, i: int, reference: np.ndarray, draws: np.ndarray, value: float) -> dict[str, float]:
    # Chains lie one after the other; a block of neighbours would be one chain.
    shuffled = np.random.default_rng(0).permutation(draws)
    found = discrepancy(reference, shuffled)
    numbers = {"c2st": value, "c2st_error": float(np.sqrt(max(value * (1 - value), 0) / (2 * len(draws))))}
    for name, estimate in found._asdict().items():
        numbers |= {name: estimate.value, f"{name}_error": estimate.error}
    return numbers | {"energy_score": energy_score(shuffled, task.true_parameters(i), reference.std(axis=0))}
