"""What all checks of a run found: the verdict, its reasons, and the files that keep them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unle.diagnose.record import ORDER, Check, Skipped, Verdict, at_most, worst
from unle.errors import StoreError
from unle.store import plain, read_json, write_json

LATER = "it takes longer than the others: unle check DIR makes it."
FORMER_NAMES = {"cloud": "outlier", "members": "ensemble_agreement"}  # of checks, in files of earlier versions


@dataclass(frozen=True)
class Findings:
    """What all checks of a run found.

    Attributes:
        checks: those that were made.
        skipped: those that were not, and why.
        made: when, in ISO format.
        seconds: how long it took.
        notes: what was special about the run.
    """

    checks: tuple[Check, ...]
    skipped: tuple[Skipped, ...]
    made: str
    seconds: float
    notes: tuple[str, ...] = ()

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
        parts = [f"{len(verdicts)} checks: {', '.join(f'{verdicts.count(word)} {word}' for word in ORDER)}"]
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
    rest = {name: record[name] for name in ("title", "question", "verdict", "advice")}
    name = str(record["name"])
    return Check(FORMER_NAMES.get(name, name), **rest, numbers=numbers, arrays=own, labels=tuple(record["labels"]))
