"""The common shape of a check: a name and a question, then a verdict, numbers, one sentence of advice, and arrays.

A check is a function that returns a `Check`, made by its `CheckKind`.  There are three verdicts, with one meaning for
every check that rests on a p-value p (the probability of a deviation at least as large if the model were right):

    good       p >= 0.01        nothing to see; of a hundred right models one is called otherwise
    doubtful   p >= 0.001       look again, with more simulations or other draws
    bad        p <  0.001       do not use the result before the cause is found

A p-value of several looks (one per parameter, say) is corrected for their number first.  Checks without a p-value have
thresholds of their own, explained where they are.

`Findings` are what all checks of a run found: the verdict, its reasons, and the files that keep them.
"""

import io
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from zipfile import BadZipFile

import numpy as np

from unle.errors import StoreError

Verdict = Literal["good", "doubtful", "bad"]
DOUBTFUL_BELOW = 0.01
BAD_BELOW = 0.001
ORDER: tuple[Verdict, ...] = ("good", "doubtful", "bad")
LATER = "it takes longer than the others: unle check DIR makes it."
IN_PYTHON = {  # how `check` is asked for what the command line names
    "unle check DIR --model FILE": "check(..., simulator=simulator)",
    "unle check DIR --simulations": "check(...) with fresh =",
}
FORMER_NAMES = {"cloud": "outlier", "members": "ensemble_agreement"}  # of checks, in files of earlier versions


@dataclass(frozen=True)
class Check:
    """The finding of one check.  `print(check)` says it in a line.

    Attributes:
        name: short, for programs; "sbc", say.
        title: for people.
        question: the doubt that it answers.
        verdict: good, doubtful or bad.
        numbers: what the verdict rests on, by name.
        advice: one sentence on what to do.
        arrays: what its picture needs, by name.
        labels: names that belong to an axis of the arrays, such as the parameters.
    """

    name: str
    title: str
    question: str
    verdict: Verdict
    numbers: Mapping[str, float | int]
    advice: str
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    labels: tuple[str, ...] = ()

    def plain(self) -> dict[str, Any]:
        """Return everything but the arrays, as JSON has it."""
        return {
            "name": self.name,
            "title": self.title,
            "question": self.question,
            "verdict": self.verdict,
            "numbers": {key: float(value) for key, value in self.numbers.items()},
            "advice": self.advice,
            "labels": list(self.labels),
        }

    def __str__(self) -> str:
        """Return one line."""
        return f"{self.title}: {self.verdict} ({say_numbers(self.numbers)}). {self.advice}"


@dataclass(frozen=True)
class CheckKind:
    """What stays the same for every finding of one check."""

    name: str  # short, for programs
    title: str  # for people
    question: str  # the doubt that it answers

    def result(
        self,
        verdict: Verdict,
        numbers: Mapping[str, float | int],
        advice: str,
        arrays: Mapping[str, np.ndarray] | None = None,
        labels: tuple[str, ...] = (),
    ) -> Check:
        """Return a finding of this check; arguments as in `Check`."""
        return Check(self.name, self.title, self.question, verdict, numbers, advice, arrays or {}, labels)


@dataclass(frozen=True)
class Skipped:
    """A check that was not made, and why."""

    name: str  # as in `Check`
    title: str  # as in `Check`
    reason: str  # one sentence
    missing: bool = False  # whether the check applies to the run, and could have refuted it, but could not be made

    def plain(self) -> dict[str, Any]:
        """Return the record as JSON has it."""
        return {"name": self.name, "title": self.title, "reason": self.reason, "missing": self.missing}


class NotApplicable(Exception):
    """A check says nothing about a run of this kind; the message says why."""


class NotMade(Exception):
    """A check applies but could not be made: too dear, or no simulator; the message says what would settle it."""


def verdict_of(p_value: float) -> Verdict:
    """Return the word for a p-value.

    Example:
        >>> [verdict_of(p) for p in (0.4, 0.004, 0.0004)]
        ['good', 'doubtful', 'bad']
    """
    return "good" if p_value >= DOUBTFUL_BELOW else "doubtful" if p_value >= BAD_BELOW else "bad"


def grade(value: float, limits: tuple[float, float]) -> Verdict:
    """Return the verdict of a number that should be small: doubtful and bad from the limits on; NaN is bad."""
    return "good" if value < limits[0] else "doubtful" if value < limits[1] else "bad"


def grade_low(value: float, limits: tuple[float, float]) -> Verdict:
    """Return the verdict of a number that should be large: doubtful and bad below the limits; NaN is bad."""
    return "good" if value >= limits[0] else "doubtful" if value >= limits[1] else "bad"


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the worst of several verdicts; good if there are none."""
    return ORDER[max(map(ORDER.index, verdicts), default=0)]


def at_most(verdict: Verdict, ceiling: Verdict) -> Verdict:
    """Return the verdict, but no better than `ceiling`."""
    return worst([verdict, ceiling])


def bonferroni(p_values: np.ndarray | list[float]) -> float:
    """Return one p-value for several looks: the smallest, times their number."""
    return float(min(1.0, len(p_values) * np.min(p_values)))


def last_record(records: Sequence[Mapping[str, Any]], stage: str, otherwise: str) -> Mapping[str, Any]:
    """Return the last metrics record of a stage of the fit; `otherwise` is the reason if there is none."""
    for record in reversed(records):
        if record.get("stage") == stage:
            return record
    raise NotApplicable(otherwise)


def say_numbers(numbers: Mapping[str, float | int]) -> str:
    """Return `name value, name value`, with three digits."""
    return ", ".join(f"{name.replace('_', ' ')} {short(value)}" for name, value in numbers.items())


def short(value: float | int) -> str:
    """Return three digits, and large numbers in full: 0.123, 2,810, 1.2e-06."""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.3g}"


@dataclass(frozen=True)
class Findings:
    """What all checks of a run found.

    Attributes:
        checks: those that were made.
        skipped: those that were not, and why.
        made: when, in ISO format.
        seconds: how long it took.
        notes: what was special about the run.
        asked: what decides the numbers besides the fit: the seed, fresh simulations, whether there was a simulator.
    """

    checks: tuple[Check, ...]
    skipped: tuple[Skipped, ...]
    made: str
    seconds: float
    notes: tuple[str, ...] = ()
    asked: Mapping[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of all; not good while a check that applies could not be made."""
        verdict = worst([check.verdict for check in self.checks])
        return at_most(verdict, "doubtful") if self.missing or not self.checks else verdict

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
        doubts = sorted((check for check in self.checks if check.verdict != "good"), key=lambda c: c.verdict)
        lines = [f"{check.verdict}: {check.title}. {check.advice}" for check in doubts]  # "bad" sorts before "doubtful"
        return *lines, *(f"could not be made: {one.title}: {one.reason}" for one in self.missing)

    @property
    def standing(self) -> str:
        """What the verdict rests on, in a few words."""
        verdicts = [check.verdict for check in self.checks]
        counts = ", ".join(f"{verdicts.count(word)} {word}" for word in ORDER)
        parts = [f"{len(verdicts)} check{'s' * (len(verdicts) != 1)}: {counts}"]
        parts += [f"{len(self.missing)} could not be made"] if self.missing else []
        parts += [f"{len(self.later)} longer ones left to unle check"] if self.later else []
        return "; ".join(parts)

    def __str__(self) -> str:
        """Say the verdict, what it rests on, and the reasons if it is not good, one line each."""
        text = "\n  ".join([f"verdict: {self.verdict} ({self.standing})", *self.reasons])
        for command, call in IN_PYTHON.items():
            text = text.replace(command, call)
        return text

    def plain(self) -> dict[str, Any]:
        """Return everything but the arrays, as JSON has it."""
        return {
            "verdict": self.verdict,
            "reasons": list(self.reasons),
            "made": self.made,
            "seconds": self.seconds,
            "notes": list(self.notes),
            "asked": dict(self.asked),
            "checks": [check.plain() for check in self.checks],
            "skipped": [one.plain() for one in self.skipped],
        }

    def save(self, path: Path) -> None:
        """Write `path`.json and the arrays to `path`.npz."""
        from unle.store import plain, write_atomically, write_json  # here: figures need a check, and not the store

        arrays = {f"{check.name}/{name}": np.asarray(a) for check in self.checks for name, a in check.arrays.items()}
        np.savez_compressed(file := io.BytesIO(), allow_pickle=False, **arrays)
        write_atomically(path.with_suffix(".npz"), file.getvalue())
        write_json(path.with_suffix(".json"), plain(self.plain()))

    @classmethod
    def load(cls, path: Path) -> "Findings":
        """Read what `save` wrote."""
        from unle.store import read_json

        content = read_json(path.with_suffix(".json"))
        try:
            with open(path.with_suffix(".npz"), "rb") as raw, np.load(raw, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            checks = tuple(_check(record, arrays) for record in content["checks"])
            skipped = tuple(Skipped(**record) for record in content["skipped"])
            rest = tuple(content["notes"]), content.get("asked", {})
            return cls(checks, skipped, content["made"], content["seconds"], *rest)
        except (OSError, EOFError, BadZipFile, zlib.error, KeyError, TypeError, ValueError) as error:
            raise StoreError(
                f"{path}.json is damaged or of another version: {error}; run `unle check` again."
            ) from None


def _check(record: dict[str, Any], arrays: dict[str, np.ndarray]) -> Check:
    own = {key.split("/", 1)[1]: value for key, value in arrays.items() if key.startswith(record["name"] + "/")}
    numbers = {name: float(value) for name, value in record["numbers"].items()}
    rest = {name: record[name] for name in ("title", "question", "verdict", "advice")}
    name = str(record["name"])
    return Check(FORMER_NAMES.get(name, name), **rest, numbers=numbers, arrays=own, labels=tuple(record["labels"]))
