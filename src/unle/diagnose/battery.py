"""All checks that apply to a run, one after the other.

To add a check: write it in a file of its own as a function that returns a `Check`, and give it an entry in `CHECKS`
that takes what it needs from the `Evidence`.  A check that says nothing about a run of this kind raises
`NotApplicable` and is listed as skipped, with the reason.  One that does apply, but for which simulations are too dear
or the simulator is not at hand, raises `NotMade`.  Then nobody has tried to refute the posterior, and the verdict is
not good.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from unle.diagnose.certificate import TITLE as CERTIFICATE
from unle.diagnose.certificate import certificate
from unle.diagnose.cloud import TITLE as CLOUD
from unle.diagnose.cloud import cloud
from unle.diagnose.coverage import TITLE as COVERAGE
from unle.diagnose.coverage import coverage
from unle.diagnose.evidence import Evidence
from unle.diagnose.grid import TITLE as GRID
from unle.diagnose.grid import density_grid, grid_agreement
from unle.diagnose.information import TITLE as INFORMATION
from unle.diagnose.information import information
from unle.diagnose.inner_mixing import TITLE as INNER
from unle.diagnose.inner_mixing import inner_mixing
from unle.diagnose.learned_normaliser import TITLE as LEARNED
from unle.diagnose.learned_normaliser import learned_normaliser
from unle.diagnose.likelihoods import at_every, at_own
from unle.diagnose.local_c2st import TITLE as LOCAL
from unle.diagnose.local_c2st import local_c2st
from unle.diagnose.lost_rounds import TITLE as ROUNDS
from unle.diagnose.lost_rounds import lost_rounds
from unle.diagnose.members import TITLE as MEMBERS
from unle.diagnose.members import member_agreement
from unle.diagnose.normaliser import TITLE as NORMALISER
from unle.diagnose.normaliser import normaliser
from unle.diagnose.posterior_sbc import TITLE as POSTERIOR_SBC
from unle.diagnose.posterior_sbc import posterior_sbc
from unle.diagnose.predictive import TITLE as PREDICTIVE
from unle.diagnose.predictive import predictive
from unle.diagnose.record import ORDER, Check, NotApplicable, NotMade, Skipped, Verdict, at_most, worst
from unle.diagnose.sampler_health import TITLE as SAMPLER
from unle.diagnose.sampler_health import sampler_health
from unle.diagnose.sbc import TITLE as SBC
from unle.diagnose.sbc import sbc
from unle.diagnose.short_run import TITLE as SHORT_RUN
from unle.diagnose.short_run import short_run
from unle.diagnose.support import TITLE as SUPPORT
from unle.diagnose.support import extreme_draws, residual_levels, support
from unle.diagnose.tail_rank import TITLE as TAIL_RANK
from unle.diagnose.tail_rank import tail_rank
from unle.diagnose.tarp import TITLE as TARP
from unle.diagnose.tarp import tarp
from unle.diagnose.training_health import TITLE as TRAINING
from unle.diagnose.training_health import training_health
from unle.diagnose.validity_calibration import TITLE as VALIDITY
from unle.diagnose.validity_calibration import validity_calibration
from unle.diagnose.within import without_region
from unle.diagnose.z_uniformity import z_uniformity
from unle.errors import InputError, StoreError
from unle.models import Ensemble, TractableLikelihood
from unle.progress import progress
from unle.store import plain, read_json, write_json

Z_DRAWS = 100  # of the posterior at which Z is estimated: its spread to a tenth
RANKED = 2000  # draws at which the residual of x_o is looked at
LATER = "it takes longer than the others: unle check DIR makes it."


@dataclass(frozen=True)
class Entry:
    """A check in the list: its name, its title, and how it is made from the evidence."""

    name: str
    title: str
    make: Callable[[Evidence], Check]
    later: bool = False  # left to `unle check`: not made at the end of every run


def _cloud(evidence: Evidence) -> Check:
    return cloud(*evidence.standardised)


def _normaliser(evidence: Evidence) -> Check:
    if not isinstance(evidence.members.ensemble, Ensemble):
        raise NotApplicable("the likelihood is not a tilted model: its normaliser is not in question.")
    found = z_uniformity(evidence.posterior, evidence.at_x_o, seed=evidence.seed, n_theta=Z_DRAWS)
    if not found.trustworthy:  # more draws of the bases, at fewer draws of theta
        few, many = Z_DRAWS // 2, 4 * found.n_data
        found = z_uniformity(evidence.posterior, evidence.at_x_o, seed=evidence.seed, n_theta=few, n_data=many)
    return normaliser(found)


def _grid(evidence: Evidence) -> Check:
    draws = evidence.at_x_o
    if not isinstance(evidence.posterior.likelihood, TractableLikelihood):
        raise NotApplicable("the likelihood has no density to compare with.")
    if len(draws.names) > 2:
        raise NotApplicable("a grid serves one or two parameters only.")
    axes, density = density_grid(evidence.posterior, draws)
    table = draws.summary()
    ess = float(np.nan_to_num(np.asarray(table["ess_bulk"], dtype=float)).min())
    return grid_agreement(axes, density, np.asarray(draws), ess=ess, seed=evidence.seed)


def _members(evidence: Evidence) -> Check:
    logs, draws = evidence.member_logs
    return member_agreement(logs, draws, evidence.at_x_o.names, geometric=evidence.members.geometric)


def _short_run(evidence: Evidence) -> Check:
    evidence.for_all_observations()
    return short_run(evidence.posterior, evidence.theta, evidence.x, seed=evidence.seed)


def _predictive(evidence: Evidence) -> Check:
    return predictive(evidence.replicas, evidence.at_x_o.x_o, twins=evidence.twins)


def _tail_rank(evidence: Evidence) -> Check:
    likelihood, twins, x_o = without_region(evidence.tractable), evidence.twins, evidence.at_x_o.x_o
    usable = twins.valid[:, 0]
    theta = twins.theta[usable]
    return tail_rank(at_every(likelihood, theta, x_o[None])[0], at_own(likelihood, theta, twins.x[usable, 0]))


def _posterior_sbc(evidence: Evidence) -> Check:
    around, shared = evidence.around
    return posterior_sbc(around, effective=shared)


def _support(evidence: Evidence) -> Check:
    ensemble = evidence.members.ensemble
    if not isinstance(ensemble, Ensemble):
        raise NotApplicable("the members have no base that measures residuals.")
    around, shared = evidence.around
    found = [residual_levels(ensemble, around, effective=shared)]
    if evidence.amortised:
        found.append(residual_levels(ensemble, evidence.calibration))
    values = np.asarray(evidence.at_x_o, float)
    some = values[np.linspace(0, len(values) - 1, min(len(values), RANKED)).astype(int)]
    extremes = extreme_draws(ensemble, some, evidence.at_x_o.x_o, *evidence.many_replicas)
    return support(found, extremes, evidence.sharp_ends)


def _local(evidence: Evidence) -> Check:
    draws = evidence.at_x_o
    if len(draws.x_o) > 1:
        raise NotApplicable("the observation has several rows; the calibration pairs have one.")
    return local_c2st(evidence.calibration, np.asarray(draws), draws.x_o[0], seed=evidence.seed)


# From cheap to dear.
CHECKS: tuple[Entry, ...] = (
    Entry("cloud", CLOUD, _cloud),
    Entry("training", TRAINING, lambda evidence: training_health(evidence.metrics)),
    Entry("information", INFORMATION, lambda evidence: information(evidence.metrics)),
    Entry("certificate", CERTIFICATE, lambda evidence: certificate(evidence.metrics)),
    Entry("rounds", ROUNDS, lambda evidence: lost_rounds(evidence.metrics)),
    Entry("sampler", SAMPLER, lambda evidence: sampler_health(evidence.at_x_o)),
    Entry("learned_normaliser", LEARNED, lambda evidence: learned_normaliser(evidence.metrics)),
    Entry("inner_mixing", INNER, lambda evidence: inner_mixing(evidence.at_x_o.info)),
    Entry("validity", VALIDITY, lambda evidence: validity_calibration(evidence.metrics)),
    Entry("grid", GRID, _grid),
    Entry("members", MEMBERS, _members),
    Entry("normaliser", NORMALISER, _normaliser),
    Entry("predictive", PREDICTIVE, _predictive),
    Entry("tail_rank", TAIL_RANK, _tail_rank),
    Entry("posterior_sbc", POSTERIOR_SBC, _posterior_sbc),
    Entry("support", SUPPORT, _support),
    Entry("short_run", SHORT_RUN, _short_run, later=True),
    Entry("sbc", SBC, lambda evidence: sbc(evidence.calibration)),
    Entry("coverage", COVERAGE, lambda evidence: coverage(evidence.calibration)),
    Entry("tarp", TARP, lambda evidence: tarp(evidence.calibration, seed=evidence.seed)),
    Entry("local_c2st", LOCAL, _local, later=True),
)


@dataclass(frozen=True)
class Findings:
    """What all checks of a run found.

    Attributes:
        checks: those that were made.
        skipped: those that were not, and why.
        made: when, in ISO format.
        seconds: how long it took.
        notes: what was special about the evidence.
    """

    checks: tuple[Check, ...]
    skipped: tuple[Skipped, ...]
    made: str
    seconds: float
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of all; not good while a check that applies could not be made."""
        found = worst([check.verdict for check in self.checks])
        return at_most(found, "doubtful") if self.missing or not self.checks else found

    @property
    def missing(self) -> tuple[Skipped, ...]:
        """Checks that apply to the run but could not be made."""
        return tuple(one for one in self.skipped if one.missing)

    @property
    def later(self) -> tuple[Skipped, ...]:
        """Checks that were left to `unle check`."""
        return tuple(one for one in self.skipped if one.reason == LATER)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the verdict is not good, one line each, the worst first; none if it is."""
        found = sorted((check for check in self.checks if check.verdict != "good"), key=lambda c: c.verdict)
        lines = [f"{check.verdict}: {check.title}. {check.advice}" for check in found]  # "bad" sorts before "doubtful"
        return *lines, *(f"could not be made: {one.title}: {one.reason}" for one in self.missing)

    @property
    def standing(self) -> str:
        """What the verdict rests on, in a few words."""
        told = [check.verdict for check in self.checks]
        parts = [f"{len(told)} checks: {', '.join(f'{told.count(word)} {word}' for word in ORDER)}"]
        parts += [f"{len(self.missing)} could not be made"] if self.missing else []
        parts += [f"{len(self.later)} longer ones left to unle check"] if self.later else []
        return "; ".join(parts)

    def plain(self) -> dict[str, Any]:
        """Return everything but the arrays, as JSON has it."""
        return {
            "verdict": self.verdict,
            "reasons": list(self.reasons),
            "made": self.made,
            "seconds": self.seconds,
            "notes": list(self.notes),
            "checks": [check.plain() for check in self.checks],
            "skipped": [one.plain() for one in self.skipped],
        }

    def save(self, path: Path) -> None:
        """Write `path`.json and the arrays to `path`.npz."""
        arrays = {f"{check.name}/{name}": np.asarray(a) for check in self.checks for name, a in check.arrays.items()}
        np.savez_compressed(path.with_suffix(".npz"), allow_pickle=False, **arrays)
        write_json(path.with_suffix(".json"), plain(self.plain()))

    @classmethod
    def load(cls, path: Path) -> "Findings":
        """Read what `save` wrote."""
        content = read_json(path.with_suffix(".json"))
        try:
            with np.load(path.with_suffix(".npz"), allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            checks = tuple(_check(record, arrays) for record in content["checks"])
            skipped = tuple(Skipped(**record) for record in content["skipped"])
            return cls(checks, skipped, content["made"], content["seconds"], tuple(content["notes"]))
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise StoreError(
                f"{path}.json is damaged or of another version: {error}; run `unle check` again."
            ) from None


def _check(record: dict[str, Any], arrays: dict[str, np.ndarray]) -> Check:
    own = {key.split("/", 1)[1]: value for key, value in arrays.items() if key.startswith(record["name"] + "/")}
    numbers = {name: float(value) for name, value in record["numbers"].items()}
    rest = {name: record[name] for name in ("name", "title", "question", "verdict", "advice")}
    return Check(**rest, numbers=numbers, arrays=own, labels=tuple(record["labels"]))


def default_checks(evidence: Evidence) -> Findings:
    """Make the checks that stand behind the verdict of every run.

    These are all that can refute a wrong posterior within a minute or so: those of the records, of the draws, of the
    normaliser, and those that simulate afresh.

    Args:
        evidence: what to look at.
    """
    findings = _made(evidence, [entry for entry in CHECKS if not entry.later])
    later = tuple(Skipped(entry.name, entry.title, LATER) for entry in CHECKS if entry.later)
    return replace(findings, skipped=findings.skipped + later)


def run_checks(evidence: Evidence, only: Sequence[str] | None = None) -> Findings:
    """Make every check that applies.

    Args:
        evidence: what to look at.
        only: names of the checks to make; all by default.

    Returns:
        The findings.  A check that fails for a reason of its own is skipped with that reason: the others still count.
    """
    names = [entry.name for entry in CHECKS]
    unknown = [name for name in only or () if name not in names]
    if unknown:
        raise InputError(f"expected checks among {', '.join(names)}; got {', '.join(unknown)}.")
    return _made(evidence, [entry for entry in CHECKS if only is None or entry.name in only])


def _made(evidence: Evidence, chosen: Sequence[Entry]) -> Findings:
    found: list[Check] = []
    skipped: list[Skipped] = []
    start = time.perf_counter()
    with progress("Checking", total=len(chosen)) as bar:
        for entry in chosen:
            try:
                found.append(entry.make(evidence))
            except NotApplicable as reason:
                skipped.append(Skipped(entry.name, entry.title, str(reason)))
            except NotMade as reason:
                skipped.append(Skipped(entry.name, entry.title, str(reason), missing=True))
            except Exception as error:  # noqa: BLE001  # one check that breaks must not take the others with it
                sentence = f"it failed: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
                skipped.append(Skipped(entry.name, entry.title, sentence, missing=True))
            bar.advance(1, note=entry.title)
    seconds = time.perf_counter() - start
    made = datetime.now(UTC).isoformat(timespec="seconds")
    return Findings(tuple(found), tuple(skipped), made, seconds, tuple(evidence.notes))
