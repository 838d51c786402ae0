"""The common shape of a check: a name and a question, then a verdict, numbers, one sentence of advice, and arrays.

A check is a function that returns a `Check`, made by its `CheckKind`.  There are three verdicts, with one meaning for
every check that rests on a p-value p (the probability of a deviation at least as large if the model were right):

    good       p >= 0.01        nothing to see; of a hundred right models one is called otherwise
    doubtful   p >= 0.001       look again, with more simulations or other draws
    bad        p <  0.001       do not use the result before the cause is found

A p-value of several looks (one per parameter, say) is corrected for their number first.  Checks without a p-value have
thresholds of their own, explained where they are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

Verdict = Literal["good", "doubtful", "bad"]
DOUBTFUL_BELOW = 0.01
BAD_BELOW = 0.001
ORDER: tuple[Verdict, ...] = ("good", "doubtful", "bad")


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
    """What stays the same for every finding of one check.

    Attributes:
        name: short, for programs.
        title: for people.
        question: the doubt that it answers.
    """

    name: str
    title: str
    question: str

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
    """A check that was not made, and why.

    Attributes:
        name: as in `Check`.
        title: as in `Check`.
        reason: one sentence.
        missing: whether the check applies to the run, and could have refuted it, but could not be made.
    """

    name: str
    title: str
    reason: str
    missing: bool = False

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
    """Return the last metrics record of a stage of the fit.

    Raises:
        NotApplicable: there is none; `otherwise` is the reason.
    """
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
