"""All checks that apply to a run, one after the other.

To add a check: write a function that returns a `Check` of a `CheckKind` of its own, in the file of the question that it
answers, and give it an entry in `CHECKS` that takes what it needs from the `FittedRun`.  A check that says nothing
about a run of this kind raises `NotApplicable` and is listed as skipped, with the reason.  One that does apply, but for
which simulations are too dear or the simulator is not at hand, raises `NotMade`.  Then nobody has tried to refute the
posterior, and the verdict is not good.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from unle.diagnose import calibration_checks as calibration
from unle.diagnose import fit_records, normaliser
from unle.diagnose.data_chains import SHORT_RUN, short_run
from unle.diagnose.fit_records import ROUNDS, lost_rounds
from unle.diagnose.fitted_run import FittedRun
from unle.diagnose.likelihoods import log_likelihood_pairs, log_likelihood_table, without_region
from unle.diagnose.local_test import LOCAL_C2ST, local_c2st
from unle.diagnose.observation import OUTLIER, outlier
from unle.diagnose.predictive_checks import PREDICTIVE, TAIL_RANK, predictive, tail_rank
from unle.diagnose.record import LATER, Check, CheckKind, Findings, NotApplicable, NotMade, Skipped
from unle.diagnose.region_check import REGION, region_mass
from unle.diagnose.sampler_checks import (
    ENSEMBLE_AGREEMENT,
    GRID,
    INNER_MIXING,
    SAMPLER,
    density_grid,
    ensemble_agreement,
    grid_agreement,
    inner_mixing,
    sampler_health,
)
from unle.diagnose.support_check import SUPPORT, extreme_draws, residual_levels, support
from unle.diagnose.z_of_theta import z_uniformity
from unle.errors import InputError, StoreError
from unle.methods import SequentialRun, as_simulations
from unle.models import Ensemble, TractableLikelihood
from unle.posterior import Draws, Posterior
from unle.progress import progress, tell
from unle.simulators import check_simulator
from unle.store import versions

Z_DRAWS = 100  # of the posterior at which Z is estimated: its spread to a tenth
EXTREME_DRAWS = 2000  # at which the residual of x_o is looked at


@dataclass(frozen=True)
class Entry:
    """A check in the list: what it is, and how it is made from a run."""

    kind: CheckKind
    make: Callable[[FittedRun], Check]
    later: bool = False  # left to `unle check`: not made at the end of every run

    @property
    def name(self) -> str:
        """The name of the check."""
        return self.kind.name


def _normaliser(run: FittedRun) -> Check:
    if not isinstance(run.members.ensemble, Ensemble):
        raise NotApplicable("the likelihood is not a tilted model: its normaliser is not in question.")
    estimate = z_uniformity(run.posterior, run.at_x_o, seed=run.seed, n_theta=Z_DRAWS)
    if not estimate.trustworthy:  # more draws of the bases, at fewer draws of theta
        few, many = Z_DRAWS // 2, 4 * estimate.n_data
        estimate = z_uniformity(run.posterior, run.at_x_o, seed=run.seed, n_theta=few, n_data=many)
    return normaliser.normaliser(estimate)


def _grid(run: FittedRun) -> Check:
    draws = run.at_x_o
    if not isinstance(run.posterior.likelihood, TractableLikelihood):
        raise NotApplicable("the likelihood has no density to compare with.")
    if len(draws.names) > 2:
        raise NotApplicable("a grid serves one or two parameters only.")
    axes, density = density_grid(run.posterior, draws)
    return grid_agreement(axes, density, np.asarray(draws), ess=run.effective_draws, seed=run.seed)


def _ensemble(run: FittedRun) -> Check:
    logs, draws = run.member_logs
    return ensemble_agreement(logs, draws, run.at_x_o.names, geometric=run.members.geometric)


def _short_run(run: FittedRun) -> Check:
    run.for_all_observations()
    return short_run(run.posterior, run.theta, run.x, seed=run.seed)


def _predictive(run: FittedRun) -> Check:
    return predictive(run.replicas, run.at_x_o.x_o, pairs=run.replica_pairs)


def _tail_rank(run: FittedRun) -> Check:
    likelihood, pairs = without_region(run.tractable), run.replica_pairs
    usable = pairs.valid[:, 0]
    theta = pairs.theta[usable]
    of_x_o = log_likelihood_table(likelihood, theta, run.at_x_o.x_o[None])[0]
    return tail_rank(of_x_o, log_likelihood_pairs(likelihood, theta, pairs.x[usable, 0]))


def _posterior_sbc(run: FittedRun) -> Check:
    around, shared = run.around
    return calibration.posterior_sbc(around, effective=shared)


def _nearest(run: FittedRun) -> Check:
    nearest, shared = run.nearest
    return calibration.posterior_sbc(nearest, effective=shared, kind=calibration.NEAREST)


def _support(run: FittedRun) -> Check:
    ensemble = run.members.ensemble
    if not isinstance(ensemble, Ensemble):
        raise NotApplicable("the members have no base that measures residuals.")
    around, shared = run.around
    levels = [residual_levels(ensemble, around, effective=shared)]
    if run.amortised:
        levels.append(residual_levels(ensemble, run.calibration))
    many = run.many_replicas
    extremes = extreme_draws(ensemble, run.some_draws(EXTREME_DRAWS), run.at_x_o.x_o, many.theta, many.x[:, 0])
    return support(levels, extremes, run.sharp_ends)


def _local(run: FittedRun) -> Check:
    draws = run.whole_x_o
    if len(draws.x_o) > 1:
        raise NotApplicable("the observation has several rows; the calibration pairs have one.")
    return local_c2st(run.calibration, np.asarray(draws), draws.x_o[0], seed=run.seed)


# From cheap to dear.
CHECKS: tuple[Entry, ...] = (
    Entry(OUTLIER, lambda run: outlier(*run.standardised)),
    Entry(fit_records.TRAINING, lambda run: fit_records.training_health(run.metrics)),
    Entry(fit_records.INFORMATION, lambda run: fit_records.information(run.metrics)),
    Entry(normaliser.CERTIFICATE, lambda run: normaliser.certificate(run.metrics)),
    Entry(ROUNDS, lambda run: lost_rounds(run.metrics)),
    Entry(REGION, lambda run: region_mass(run.posterior, run.at_x_o)),
    Entry(SAMPLER, lambda run: sampler_health(run.at_x_o)),
    Entry(normaliser.LEARNED_NORMALISER, lambda run: normaliser.learned_normaliser(run.metrics)),
    Entry(INNER_MIXING, lambda run: inner_mixing(run.at_x_o.info)),
    Entry(fit_records.VALIDITY, lambda run: fit_records.validity_calibration(run.metrics)),
    Entry(GRID, _grid),
    Entry(ENSEMBLE_AGREEMENT, _ensemble),
    Entry(normaliser.NORMALISER, _normaliser),
    Entry(PREDICTIVE, _predictive),
    Entry(TAIL_RANK, _tail_rank),
    Entry(calibration.POSTERIOR_SBC, _posterior_sbc),
    Entry(calibration.NEAREST, _nearest),
    Entry(SUPPORT, _support),
    Entry(SHORT_RUN, _short_run, later=True),
    Entry(calibration.SBC, lambda run: calibration.sbc(run.calibration)),
    Entry(calibration.COVERAGE, lambda run: calibration.coverage(run.calibration)),
    Entry(calibration.TARP, lambda run: calibration.tarp(run.calibration, seed=run.seed)),
    Entry(LOCAL_C2ST, _local, later=True),
)


def check(
    posterior: Posterior,
    draws: Draws,
    simulations: Any = None,
    simulator: Callable | None = None,
    *,
    metrics: Sequence[Mapping[str, Any]] = (),
    fresh: int | None = None,
    seed: int = 0,
) -> Findings:
    """Check a posterior at an observation, as `unle run` does at its end.

    Args:
        posterior: fitted.
        draws: of it at the observation.
        simulations: it was fitted to: those of `unle.simulate`, a pair (theta, x), or what `SUNLE(...).run` returned.
        simulator: makes fresh simulations; without it most checks cannot be made, and the verdict is not good.
        metrics: the records of the fit, where they were collected by `fit(..., on_metrics=)`.
        fresh: simulations to make for calibration; by default 300, if they take half a minute at most.
        seed: fixes what is random about the checks.

    Returns:
        `Findings`: `print` shows the verdict and its reasons.
    """
    if isinstance(posterior, Draws):
        raise InputError("expected the posterior before its draws; got them the other way round.")
    if simulations is None or (callable(simulations) and not hasattr(simulations, "theta")):
        raise InputError(
            "expected the simulations that the posterior was fitted to, before the simulator; try check(posterior, "
            "draws, simulations, simulator)."
        )
    if simulator is not None:
        check_simulator(simulator)
    amortised = not isinstance(simulations, SequentialRun)
    rows = as_simulations(simulations if amortised else simulations.simulations, posterior.prior)
    return default_checks(
        FittedRun(
            posterior,
            draws,
            rows.valid_theta,
            rows.valid_x,
            metrics,
            simulator,
            seconds=float(rows.seconds.mean()),
            simulations=fresh,
            seed=seed,
            amortised=amortised,
        )
    )


def default_checks(run: FittedRun, keep_in: Path | None = None) -> Findings:
    """Make the checks that stand behind the verdict of every run.

    These are all that can refute a wrong posterior within a minute or so: those of the records, of the draws, of the
    normaliser, and those that simulate afresh.

    Args:
        run: what to look at.
        keep_in: as in `run_checks`.
    """
    findings = _make(run, [entry for entry in CHECKS if not entry.later], keep_in)
    later = tuple(Skipped(entry.name, entry.kind.title, LATER) for entry in CHECKS if entry.later)
    return replace(findings, skipped=findings.skipped + later)


def run_checks(run: FittedRun, only: Sequence[str] | None = None, keep_in: Path | None = None) -> Findings:
    """Make every check that applies.

    Args:
        run: what to look at.
        only: names of the checks to make; all by default.
        keep_in: a path without suffix, where every check is kept as it ends.  What an interrupted call with the same
            seed, simulations and simulator has left there is not made again.

    Returns:
        The findings.  A check that fails for a reason of its own is skipped with that reason: the others still count.
    """
    names = [entry.name for entry in CHECKS]
    unknown = [name for name in only or () if name not in names]
    if unknown:
        raise InputError(f"expected checks among {', '.join(names)}; got {', '.join(unknown)}.")
    return _make(run, [entry for entry in CHECKS if only is None or entry.name in only], keep_in)


def _make(run: FittedRun, chosen: Sequence[Entry], keep_in: Path | None) -> Findings:
    asked = {"seed": run.seed, "simulations": run.simulations, "simulator": run.simulator is not None}
    asked |= {"versions": versions()}
    kept = _kept(keep_in, asked)
    checks: dict[str, Check] = {check.name: check for check in kept.checks}
    skipped: list[Skipped] = []
    start = time.perf_counter() - kept.seconds
    if checks:
        tell(f"Checks kept from the last time: {len(checks)}; those that are missing follow.")

    def findings() -> Findings:
        made = datetime.now(UTC).isoformat(timespec="seconds")
        ordered = tuple(checks[entry.name] for entry in chosen if entry.name in checks)
        notes = tuple(dict.fromkeys((*kept.notes, *run.notes)))
        return Findings(ordered, tuple(skipped), made, time.perf_counter() - start, notes, asked)

    with progress("Checking", total=len(chosen), steady=False) as bar:
        for entry in chosen:
            bar.advance(0, note=entry.kind.title)
            made = None
            try:
                if entry.name not in checks:
                    made = checks[entry.name] = entry.make(run)
            except NotApplicable as reason:
                skipped.append(Skipped(entry.name, entry.kind.title, str(reason)))
            except NotMade as reason:
                skipped.append(Skipped(entry.name, entry.kind.title, str(reason), missing=True))
            except Exception as error:  # noqa: BLE001  # one check that breaks must not take the others with it
                sentence = f"it failed: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
                skipped.append(Skipped(entry.name, entry.kind.title, sentence, missing=True))
            if made is not None and keep_in is not None:  # a full disk is no failure of the check: it ends them all
                findings().save(keep_in)
            bar.advance(1)
    return findings()


def _kept(path: Path | None, asked: Mapping[str, Any]) -> Findings:
    """Return what an interrupted call has left, if it was asked for the same; what was left of another is removed."""
    if path is not None:
        with suppress(StoreError):  # there is nothing, or it is damaged
            if (kept := Findings.load(path)).asked == asked:
                return kept
        for suffix in (".json", ".npz"):  # checks of one call must not meet arrays of another
            path.with_suffix(suffix).unlink(missing_ok=True)
    return Findings((), (), "", 0.0)
