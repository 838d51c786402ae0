"""One run of one method on one simulator, as a user would make it, and the row that comes of it."""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from unle.diagnose import Evidence, Findings, default_checks
from unle.errors import UnleWarning
from unle.methods import AUNLE, NLE, SNLE, SUNLE
from unle.posterior import Draws, Posterior
from unle.progress import silence
from unle.simulators import Simulations, simulate
from unle.store import plain
from unle_bench.adversary.record import Adversary, observation_of
from unle_bench.adversary.scoring import is_wrong, measures
from unle_bench.adversary.simulators import ADVERSARIES
from unle_bench.contestant import reason_of
from unle_bench.origin import origin
from unle_bench.results_store import OK
from unle_bench.sweep import machine

AMORTISED = {"aunle": AUNLE, "nle": NLE}
SEQUENTIAL = {"sunle": SUNLE, "snle": SNLE}
METHODS = (*AMORTISED, *SEQUENTIAL)
ROUNDS = 10
DRAWS = 10_000  # as `unle run` makes
NOISES = {True: "noise", False: "normal"}  # of the base: learned, or Gaussian
NO_VERDICT = "none"  # where the checks themselves failed
KEY = ("simulator", "method", "seed", "observation")

Row = dict[str, Any]
Key = tuple[str, str, int, str]


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
    evidence = Evidence(
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
    return {
        "base": short.get("base", NOISES[bool(short["noise"])] if "noise" in short else ""),
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
