"""Trials: one run of one method on one simulator, as a user would make it, and the row that comes of it.

`run_adversary` runs all that a file lacks, in this process or in several side by side.
"""

import itertools
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from unle.diagnose import Findings, FittedRun, default_checks
from unle.errors import InputError, UnleWarning
from unle.methods import AUNLE, NLE, SNLE, SUNLE
from unle.posterior import Draws, Posterior
from unle.progress import silence
from unle.simulators import Simulations, simulate
from unle.store import locked, plain
from unle_bench.adversary.distances import is_wrong, measures
from unle_bench.adversary.rows import KEY, Key, Row, append_row, key_of, mend, read_rows
from unle_bench.adversary.simulator import Adversary, observation_of
from unle_bench.adversary.simulators import ADVERSARIES
from unle_bench.methods.method_adapter import reason_of
from unle_bench.results.results_store import OK
from unle_bench.sweep.origin import machine, origin
from unle_bench.sweep.process_pool import run_in_pool

AMORTISED = {"aunle": AUNLE, "nle": NLE}
SEQUENTIAL = {"sunle": SUNLE, "snle": SNLE}
METHODS = (*AMORTISED, *SEQUENTIAL)
ROUNDS = 10
DRAWS = 10_000  # as `unle run` makes
NOISES = {True: "noise", False: "normal"}  # of the base: learned, or Gaussian
SEEDS = (0, 1, 2)
DIED = "the worker process died (out of memory?)"
NO_VERDICT = "none"  # where the checks themselves failed


@dataclass(frozen=True)
class Trial:
    """What is to be run."""

    simulator: str
    method: str
    seed: int

    @property
    def observation(self) -> str:
        """The observation that belongs to the seed."""
        return observation_of(self.seed)

    @property
    def key(self) -> Key:
        """What its row is known by."""
        return self.simulator, self.method, self.seed, self.observation

    def __str__(self) -> str:
        return f"{self.simulator}/{self.method}/{self.seed}"


OnRow = Callable[[Row], None]
Group = tuple[Trial, ...]  # of one simulator and method: their programs have the same shapes, and are compiled once


@dataclass(frozen=True)
class Fitted:
    """What a method made, and everything its checks look at."""

    posterior: Posterior
    draws: Draws
    simulations: Simulations
    metrics: list[dict[str, Any]]
    amortised: bool


def run_trial(trial: Trial, *, jobs: int | None = None) -> Row:
    """Run it; whatever goes wrong becomes a row with the reason.

    Args:
        trial: what to run.
        jobs: cores that the classifier may use; None for all.
    """
    adversary = ADVERSARIES[trial.simulator]
    row: Row = dict(zip(KEY, trial.key, strict=True))
    row |= {"simulations": adversary.simulations, "outcome": OK} | _circumstances()
    heard: list[warnings.WarningMessage] = []
    start = time.perf_counter()
    try:
        with silence(), warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always", UnleWarning)
            fitted = fit_and_draw(adversary, trial)
            row |= {"seconds": time.perf_counter() - start} | _kept(fitted)
            row |= _said(fitted, adversary, trial.seed)
        row |= _scored(adversary, trial.observation, np.asarray(fitted.draws, float), jobs)
    except Exception as error:  # noqa: BLE001  # a method may fail in any way; the others are still to be run
        row |= {"outcome": reason_of(error)}
    row.setdefault("seconds", time.perf_counter() - start)
    row["warnings"] = sorted({str(one.message)[:200] for one in heard if issubclass(one.category, UnleWarning)})
    return finished(row)


def finished(row: Row) -> Row:
    """Return a row with its conclusions: is the posterior wrong, and was the user assured of it all the same?"""
    wrong = None if row["outcome"] != OK else row.get("not_finite", 0) > 0 or is_wrong(row)
    return plain(row | {"wrong": wrong, "false_assurance": bool(wrong) and row.get("verdict") == "good"})


def fit_and_draw(adversary: Adversary, trial: Trial) -> Fitted:
    """Do what `unle run` does: simulate, fit with the next seed, draw with the one after."""
    prior, simulator = adversary.prior.for_methods(), adversary.simulator()
    x_o = adversary.observations[trial.observation]
    metrics: list[dict[str, Any]] = []
    keep: Callable[..., None] = lambda **values: metrics.append(plain(values))  # noqa: E731
    if trial.method in AMORTISED:
        simulations = simulate(simulator, prior, adversary.simulations, seed=trial.seed)
        posterior = AMORTISED[trial.method](prior).fit(simulations, seed=trial.seed + 1, on_metrics=keep)
    else:
        method = SEQUENTIAL[trial.method](prior, simulator)
        run = method.run(x_o, budget=adversary.simulations, rounds=ROUNDS, seed=trial.seed, on_metrics=keep)
        posterior, simulations = run.posterior, run.simulations
    draws = posterior.sample(x_o, DRAWS, seed=trial.seed + 2)
    return Fitted(posterior, draws, simulations, metrics, trial.method in AMORTISED)


def checks_after_a_run(fitted: Fitted, adversary: Adversary, seed: int) -> Findings:
    """Make the checks that `unle run` makes at its end, without being asked for any: what a user would see.

    This is the one place that says which they are.
    """
    simulations = fitted.simulations
    evidence = FittedRun(
        fitted.posterior,
        fitted.draws,
        simulations.valid_theta,
        simulations.valid_x,
        fitted.metrics,
        adversary.simulator(),
        float(simulations.seconds.mean()),
        seed=seed,
        amortised=fitted.amortised,
    )
    return default_checks(evidence)


def _kept(fitted: Fitted) -> Row:
    """Return what the fit says that it kept."""
    said = next((record for record in fitted.metrics[::-1] if record.get("stage") == "fitted"), {})
    short = {k: v for k, v in said.items() if k != "stage" and isinstance(v, str | int | float | bool)}
    base = short.get("base", NOISES[bool(short["noise"])] if "noise" in short else "")
    return {
        "base": "autoregressive" if short.get("autoregressive") else base,
        "energy": short.get("energy", ""),
        "fit": short,
        "valid": float(fitted.simulations.valid.mean()),
    }


def _said(fitted: Fitted, adversary: Adversary, seed: int) -> Row:
    start = time.perf_counter()
    try:
        findings = checks_after_a_run(fitted, adversary, seed)
    except Exception as error:  # noqa: BLE001  # the draws are there all the same, and are scored
        return {"verdict": NO_VERDICT, "reasons": [reason_of(error)]}
    return {
        "verdict": findings.verdict,
        "reasons": [reason[:200] for reason in findings.reasons],
        "checks": {check.name: check.verdict for check in findings.checks},
        "check_seconds": time.perf_counter() - start,
    }


def _scored(adversary: Adversary, observation: str, draws: np.ndarray, jobs: int | None) -> Row:
    start = time.perf_counter()
    broken = int((~np.isfinite(draws)).any(axis=1).sum())
    if broken:
        return {"not_finite": broken}
    numbers: Row = dict(measures(adversary.exact(observation), draws, jobs=jobs))
    return numbers | {"not_finite": 0, "score_seconds": time.perf_counter() - start}


def _circumstances() -> Row:
    return origin() | {"machine": machine()}


def trials(
    simulators: Sequence[str] = (), methods: Sequence[str] = ("aunle", "sunle"), seeds: Sequence[int] = SEEDS
) -> list[Trial]:
    """Return the independent pieces of work.

    Args:
        simulators: names; all if there are none.
        methods: names.
        seeds: of whole runs; each brings its observation with it.
    """
    for kind, names, known in (("simulator", simulators, ADVERSARIES), ("method", methods, METHODS)):
        unknown = [name for name in names if name not in known]
        if unknown:
            raise InputError(f"expected a {kind} among {', '.join(known)}; got {', '.join(unknown)}.")
    chosen = tuple(dict.fromkeys(simulators)) or tuple(ADVERSARIES)
    return [Trial(*parts) for parts in itertools.product(chosen, dict.fromkeys(methods), dict.fromkeys(seeds))]


def run_adversary(wanted: Iterable[Trial], path: Path, *, jobs: int = 1, on_row: OnRow = lambda row: None) -> list[Row]:
    """Run what the file lacks, and return all rows of what is wanted.

    Args:
        wanted: the trials.
        path: of the file; a row is added as soon as it is there.
        jobs: processes side by side, each with its share of the cores; one stays in this process.
        on_row: called for every new row.
    """
    wanted = list(wanted)
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.with_name(path.name + ".lock"), f"{path}"):
        mend(path)
        left = _left(wanted, path)
        if jobs <= 1 or len(left) <= 1:
            for trial in left:
                row = run_trial(trial)
                append_row(path, row)
                on_row(row)
        elif not _in_pool(_groups(left), path, jobs, on_row):
            _one_by_one(wanted, path, on_row)
    keys = {trial.key for trial in wanted}
    return [row for row in read_rows(path) if key_of(row) in keys]


def _left(wanted: list[Trial], path: Path) -> list[Trial]:
    done: set[Key] = {key_of(row) for row in read_rows(path)}
    return [trial for trial in wanted if trial.key not in done]


def _groups(left: list[Trial]) -> list[Group]:
    found: dict[tuple[str, str], list[Trial]] = {}
    for trial in left:
        found.setdefault((trial.simulator, trial.method), []).append(trial)
    # The dearest first, so that no process is left alone with them at the end.
    return sorted(map(tuple, found.values()), key=lambda group: -_cost(group))


def _cost(group: Group) -> float:
    adversary = ADVERSARIES[group[0].simulator]
    return len(group) * adversary.prior.dim * (1 + adversary.simulations / 1000)


def _in_pool(groups: list[Group], path: Path, jobs: int, on_row: OnRow) -> bool:
    """Run groups in processes; return False if one of them died."""
    wanted, told = {trial.key for group in groups for trial in group}, set[Key]()

    def tell() -> None:
        for row in read_rows(path):
            if key_of(row) in wanted - told:
                told.add(key_of(row))
                on_row(row)

    alive = run_in_pool([partial(_run_group, group, path) for group in groups], workers=jobs, on_tick=tell)
    tell()
    return alive


def _one_by_one(wanted: list[Trial], path: Path, on_row: OnRow) -> None:
    """After a death: every trial in a process of its own, so that another death has one cause."""
    for trial in _left(wanted, path):
        if not _in_pool([(trial,)], path, 1, on_row):
            row: Row = finished(dict(zip(KEY, trial.key, strict=True)) | {"outcome": DIED})
            append_row(path, row)
            on_row(row)


def _run_group(group: Group, path: Path) -> None:
    for trial in group:
        append_row(path, run_trial(trial, jobs=1))
